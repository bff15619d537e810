#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/mutant.h"
#include "tests/support/preload_job.h"

namespace cube::preload {

namespace {
int g_count = 0;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}
bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }
// PRELOAD_LIBRARY: another build, to show that the tests notice its faults.
std::string library_path() {
  const char* const other = getenv("PRELOAD_LIBRARY");
  return other != nullptr ? other : CUBESHIM_LIBRARY;
}
std::string helper_path() { return PRELOAD_HELPER; }

Job::Job(int files)
    : data_(dir_ / "data"),
      name_("preload-" + std::to_string(getpid()) + "-" + std::to_string(++g_count)) {
  chmod(dir_.path().c_str(), 0755);
  mkdir(data_.c_str(), 0755);
  for (int i = 0; i < files; ++i) tests::TempDir::write_file(file(i), content_of(i));
  env = {{"PATH", "/usr/bin:/bin:/usr/sbin:/sbin"},
         {"LANG", "C.UTF-8"},
         {"LD_PRELOAD", library_path()},
         {"CUBESHIM_PREFIXES", data_},
         {"CUBESHIM_NAME", name_},
         {"CUBESHIM_RAM", "32M"},
         {"CUBESHIM_STATS", dir_ / "report.json"},
         {"CUBESHIM_STATS_FORMAT", "json"}};
}

std::string Job::region() const {
  const auto dir = env.find("CUBESHIM_RAM_DIR");
  return (dir == env.end() ? "/dev/shm" : dir->second) + "/cubeshim-" + std::to_string(geteuid()) +
         "-" + name_;
}

Job::~Job() {
  if (checks_region) {
    EXPECT_FALSE(exists(region())) << "the region is still there";
  }
  unlink(region().c_str());
}

Outcome Job::run(const std::vector<std::string>& command) const {
  std::vector<std::string> variables;
  for (const auto& [key, value] : env) variables.push_back(key + "=" + value);
  tests::keep_mutant(variables);
  std::vector<char*> arguments, environment;
  for (const auto& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  for (auto& v : variables) environment.push_back(v.data());
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  const std::string out = dir_ / "stdout", err = dir_ / "stderr";
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);
    const int in_fd = open("/dev/null", O_RDONLY);
    const int out_fd = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int err_fd = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    dup2(in_fd, 0);
    dup2(out_fd, 1);
    dup2(err_fd, 2);
    close_range(3, ~0U, 0);
    execvpe(arguments[0], arguments.data(), environment.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out),
          read_file(err)};
}
Outcome Job::helper(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {helper_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(command);
}
Outcome Job::python(const std::string& script) const {
  const std::string common =
      "import os, sys, subprocess\n"
      "D = '" +
      data_ +
      "'\n"
      "SIZES = [0, 1, 100, 4096, 5000, 32768, 65537, 200000, 300, 700]\n"
      "def path(n): return f'{D}/f{n}'\n"
      "def content(n): return bytes((i * 31 + n * 7 + (i >> 8)) & 255 for i in range(SIZES[n % "
      "10]))\n"
      "def check(n):\n"
      "  with open(path(n), 'rb') as f: assert f.read() == content(n), n\n";
  return run({"/usr/bin/python3", "-c", common + script});
}

std::string Job::report_text() const { return read_file(dir_ / "report.json"); }
double Job::report(const std::string& field) const {
  const std::string text = report_text();
  // One object per line; the last counts.
  std::size_t end = text.size();
  while (end > 0 && text[end - 1] == '\n') --end;
  const std::size_t begin = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  nlohmann::json json = nlohmann::json::parse(
      text.substr(begin == std::string::npos ? 0 : begin + 1), nullptr, false);
  if (json.is_discarded()) return -2;
  std::stringstream parts(field);
  for (std::string part; std::getline(parts, part, '.');) {
    if (!json.contains(part)) return -1;
    json = nlohmann::json(json[part]);
  }
  return json.is_number() ? json.get<double>() : -1;
}

}  // namespace cube::preload
