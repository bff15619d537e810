// The commands of the program that the fault tests harm, and the form of their answers.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace cube::crash {

// A line from the driver: the command and its arguments.
using Words = std::vector<std::string>;
using Commands = std::map<std::string, std::string (*)(const Words&)>;

// The commands on a file by its path, on an fd that stays open, and with a child.
Commands path_commands();
Commands fd_commands();
Commands child_commands();

// "error ERRNO STEP" of a call that has just failed.
std::string failed(const char* step);
// "ok SIZE BYTES CRC": the size that stat gave, and the bytes that were read.
std::string seen(long size, const std::string& bytes);
// Reads to the end, with the given kind of read. Returns false and sets errno on failure.
bool read_all(int fd, const std::string& how, std::string& bytes);

// read PATH [HOW]: opens, stats, reads to the end, and closes
std::string do_read(const Words& words);
// next FD BYTES: one read; at FD OFFSET BYTES: one pread
std::string do_next(const Words& words);
std::string do_at(const Words& words);

}  // namespace cube::crash
