#pragma once

#include <cstdint>

constexpr uint64_t mib = 1 << 20, gib = 1 << 30;
