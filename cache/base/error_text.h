// The text of an errno. Thread safety: pure; async-signal-safe.
#pragma once

#include <cstring>

namespace cube::base {

// Never null: a FUSE server may answer with a number that has no text, and fmt throws at a null pointer.
inline const char* text_of_error(int error) {
  const char* const text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
}

}  // namespace cube::base
