// Commands of the program that the fault tests harm, and the words of their answers.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace cube::crash {

// A line from the driver: the command and its arguments.
using Words = std::vector<std::string>;
using Commands = std::map<std::string, std::string (*)(const Words&)>;

// On a file by its path; on a number that stays open; with a child.
Commands path_commands();
Commands fd_commands();
Commands child_commands();

// "error ERRNO STEP" of a call that has just failed.
std::string failed(const char* step);
// "ok SIZE BYTES CRC": the size that was told, and the bytes that came.
std::string seen(long size, const std::string& bytes);
// To the end, by the kind of read that is asked for. False: errno says why.
bool read_all(int fd, const std::string& how, std::string& bytes);

// read PATH [HOW]: open, fstat, read to the end, close
std::string do_read(const Words& words);
// next NUMBER BYTES: what one read gives; at NUMBER OFFSET BYTES: what one pread gives
std::string do_next(const Words& words);
std::string do_at(const Words& words);

}  // namespace cube::crash
