#include "counters.h"

#include <fmt/format.h>

#include <iterator>

namespace cube::lagfs {
namespace {

// Relaxed order suffices everywhere, because the kernel passes the reply to the client, and this
// orders the client's view of the counters.
constexpr auto k_relaxed = std::memory_order_relaxed;

struct Sum {
  std::uint64_t data_files = 0;
  std::uint64_t other = 0;
  std::uint64_t errors = 0;

  std::uint64_t count() const { return data_files + other; }
};

bool carries_bytes(Op op) { return op == Op::read || op == Op::write; }

}  // namespace

void Counters::add(Op op, bool data_file) {
  Row& row = rows_[index_of(op)];
  (data_file ? row.data_files : row.other).fetch_add(1, k_relaxed);
}

void Counters::add_error(Op op) { rows_[index_of(op)].errors.fetch_add(1, k_relaxed); }

void Counters::add_bytes(Op op, std::uint64_t bytes) {
  rows_[index_of(op)].bytes.fetch_add(bytes, k_relaxed);
}

void Counters::add_forget(std::uint64_t count) { forget_.fetch_add(count, k_relaxed); }

void Counters::reset() {
  for (Row& row : rows_) {
    for (auto* value : {&row.data_files, &row.other, &row.errors, &row.bytes})
      value->store(0, k_relaxed);
  }
  forget_.store(0, k_relaxed);
}

std::string Counters::text() const {
  std::string out;
  Sum total;
  for (std::size_t i = 0; i < k_op_count; ++i) {
    const Sum row{rows_[i].data_files.load(k_relaxed), rows_[i].other.load(k_relaxed), 0};
    fmt::format_to(std::back_inserter(out), "{} {}\n", k_op_names[i], row.count());
    total.data_files += row.data_files;
    total.other += row.other;
  }
  fmt::format_to(std::back_inserter(out), "total {}\ndata_files {}\nother {}\nforget {}\n",
                 total.count(), total.data_files, total.other, forget_.load(k_relaxed));
  return out;
}

std::string Counters::json() const {
  std::string out = "{";
  Sum total;
  for (std::size_t i = 0; i < k_op_count; ++i) {
    const Sum row{rows_[i].data_files.load(k_relaxed), rows_[i].other.load(k_relaxed),
                  rows_[i].errors.load(k_relaxed)};
    fmt::format_to(std::back_inserter(out),
                   "\"{}\": {{\"count\": {}, \"errors\": {}, \"data_files\": {}, \"other\": {}",
                   k_op_names[i], row.count(), row.errors, row.data_files, row.other);
    if (carries_bytes(static_cast<Op>(i))) {
      fmt::format_to(std::back_inserter(out), ", \"bytes\": {}", rows_[i].bytes.load(k_relaxed));
    }
    out += "},\n ";
    total.data_files += row.data_files;
    total.other += row.other;
    total.errors += row.errors;
  }
  fmt::format_to(std::back_inserter(out),
                 "\"total\": {{\"count\": {}, \"errors\": {}, \"data_files\": {}, \"other\": "
                 "{}}},\n \"forget\": {}}}\n",
                 total.count(), total.errors, total.data_files, total.other,
                 forget_.load(k_relaxed));
  return out;
}

}  // namespace cube::lagfs
