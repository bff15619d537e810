// A reader (reader.cc) under the library, with its own settings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/child.h"
#include "tests/support/mutant.h"

namespace cube::freshness {

class Program {
 public:
  explicit Program(const std::map<std::string, std::string>& environment) {
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
    tests::keep_mutant(variables);
    std::vector<char*> pointers;
    for (auto& v : variables) pointers.push_back(v.data());
    pointers.push_back(nullptr);
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) std::perror("pipe2");
    child_ = tests::Child([&] {
      dup2(to[0], 0);
      dup2(from[1], 1);
      char* const arguments[] = {const_cast<char*>(FRESHNESS_READER), nullptr};
      execve(FRESHNESS_READER, arguments, pointers.data());
      return 127;
    });
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { end(); }

  // Returns the reader's answer, or "(no answer)" if the reader has died or does not answer within
  // half a minute.
  std::string ask(const std::string& command) {
    const std::string line = command + "\n";
    std::string answer;
    if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      return "(no answer)";
    for (char c = 0;; answer += c) {
      pollfd waiting{from_, POLLIN, 0};
      if (poll(&waiting, 1, 120'000) != 1 || read(from_, &c, 1) != 1) return "(no answer)";
      if (c == '\n') return answer;
    }
  }
  // Ends the program as if its work were done, and returns its exit status.
  int end() {
    if (to_ < 0) return 0;
    close(to_);
    to_ = -1;
    const int status = child_.wait();
    close(from_);
    return status;
  }

 private:
  tests::Child child_;
  int to_ = -1, from_ = -1;
};

}  // namespace cube::freshness
