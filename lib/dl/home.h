#pragma once

#include <string>

namespace emm::dl {

// The folder of libemm itself. Plugins and the simulated driver are looked for from there, so an
// installed tree may be moved.
struct Home {
    std::string folder; // of the real file, without a final slash; "" if unknown
    // The library was not installed: other files lie where Meson builds them.
    bool build_tree = false;
};

const Home &home();

// The same for the library that contains `address`, for a program that links libemm.
Home home_of(const void *address);

} // namespace emm::dl
