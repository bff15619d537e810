#include "prefetch/object/s3/curl_api.h"

#include <dlfcn.h>

#include <memory>

// libcurl's headers define these names as macros, which check arguments or rename the functions.
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

namespace cube::s3 {
namespace {

// The names of the builds with OpenSSL, GnuTLS and NSS.
constexpr const char* k_files[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};

std::unique_ptr<const CurlApi> load() {
  void* library = nullptr;
  for (const char* const file : k_files) {
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) return nullptr;
  auto api = std::make_unique<CurlApi>();
  bool is_whole = true;
  const auto find = [&](auto& function, const char* name) {
    void* const found = dlsym(library, name);
    is_whole = is_whole && found != nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(api->global_init, "curl_global_init");
  find(api->version, "curl_version");
  find(api->easy_init, "curl_easy_init");
  find(api->easy_reset, "curl_easy_reset");
  find(api->easy_cleanup, "curl_easy_cleanup");
  find(api->easy_perform, "curl_easy_perform");
  find(api->set, "curl_easy_setopt");
  find(api->info, "curl_easy_getinfo");
  find(api->error_text, "curl_easy_strerror");
  find(api->list_append, "curl_slist_append");
  find(api->list_free, "curl_slist_free_all");
  find(api->multi_init, "curl_multi_init");
  find(api->multi_add, "curl_multi_add_handle");
  find(api->multi_remove, "curl_multi_remove_handle");
  find(api->multi_act, "curl_multi_socket_action");
  find(api->multi_next, "curl_multi_info_read");
  find(api->multi_cleanup, "curl_multi_cleanup");
  find(api->multi_set, "curl_multi_setopt");
  if (!is_whole || api->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return nullptr;
  return api;
}

}  // namespace

const CurlApi* curl() {
  static const std::unique_ptr<const CurlApi> api = load();
  return api.get();
}

const char* why_no_curl() {
  return "there is no libcurl (libcurl.so.4): install it (libcurl4 on Debian and Ubuntu, libcurl "
         "on Red Hat and SUSE)";
}

}  // namespace cube::s3
