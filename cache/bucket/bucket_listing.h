// Lists a directory of a bucket for a program. Thread-safe and async-signal-safe.
#pragma once

#include "cache/bucket/bucket.h"
#include "cache/record/listing.h"

namespace cube::cache {

// `key` is absolute. `with_names` is false: the listing has no entries. The caller ends the listing
// by release(). Errors: as Bucket; ENOTDIR.
base::Result<Listing*> list_bucket(const Bucket& bucket, std::string_view key, bool with_names);

}  // namespace cube::cache
