// Prints where this process would look for plugins, for search_test.py.
#include "loader/search.h"

#include <cstdio>

// A process with elevated privileges can neither be searched for leaks nor be told so from outside.
extern "C" const char *__asan_default_options();
extern "C" const char *__asan_default_options() {
    return "detect_leaks=0";
}

int main() {
    const emm::loader::Search &search = emm::loader::process_search();
    for (const std::string &folder : search.path) {
        std::printf("path %s\n", folder.c_str());
    }
    std::printf("plugin_folder %s\nuser %u\nallow_untrusted %d\nelevated %d\n",
                search.plugin_folder.c_str(), static_cast<unsigned>(search.user),
                search.allow_untrusted, search.elevated);
    return 0;
}
