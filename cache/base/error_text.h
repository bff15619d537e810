// The message for an errno. Thread safety: pure. Async-signal-safe from glibc 2.32 on.
#pragma once

#include "cache/base/newer_libc.h"

namespace cube::base {

// Never returns null, even for an errno that libc does not know (a FUSE server can return one). fmt
// throws on a null pointer.
inline const char* text_of_error(int error) {
  const char* const unknown = "unknown error";
  if (&strerrordesc_np == nullptr) {
    // The GNU strerror_r writes to the buffer only if it has no text for the error.
    char buffer[1];
    const char* const text = strerror_r(error, buffer, sizeof buffer);
    return text != buffer ? text : unknown;
  }
  const char* const text = strerrordesc_np(error);
  return text != nullptr ? text : unknown;
}

}  // namespace cube::base
