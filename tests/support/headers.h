// A precompiled header of the headers that nearly every test of cache/ and prefetch/ includes. A
// test still includes all headers that it uses.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tl/expected.hpp>
#include <vector>
