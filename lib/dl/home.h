#pragma once

#include <string>

namespace emm::dl {

// Where libemm itself lies: plugins and the simulated driver are looked for from there, so that an
// installed tree may be moved.
struct Home {
    std::string folder;      // of the real file, without a final slash; "" if it cannot be told
    bool build_tree = false; // the library was not installed: the rest lies where Meson builds it
};

const Home &home();

// The same of the library that has `address`, for a program that links libemm.
Home home_of(const void *address);

} // namespace emm::dl
