// Loads libcurl when it is first needed, so that neither the other commands nor the packages depend
// on it. Any build of libcurl.so.4 since version 7.28 works. Thread-safe.
#pragma once

#include <curl/curl.h>

namespace cube::s3 {

struct CurlApi {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_version) version;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_setopt) set;
  decltype(&::curl_easy_getinfo) info;
  decltype(&::curl_easy_strerror) error_text;
  decltype(&::curl_slist_append) list_append;
  decltype(&::curl_slist_free_all) list_free;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_add_handle) multi_add;
  decltype(&::curl_multi_remove_handle) multi_remove;
  decltype(&::curl_multi_socket_action) multi_act;
  decltype(&::curl_multi_info_read) multi_next;
  decltype(&::curl_multi_cleanup) multi_cleanup;
  decltype(&::curl_multi_setopt) multi_set;
};

// Returns null if there is no libcurl; why_no_curl() then says what was tried.
const CurlApi* curl();
const char* why_no_curl();

}  // namespace cube::s3
