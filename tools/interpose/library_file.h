// Finds the library that an interposer stands in for; both have the same name.
#pragma once

#include <limits.h>
#include <stddef.h>

namespace emm::run {

struct Path {
    char text[PATH_MAX];
};

// A walk calls this for each path, with the caller's state. True ends the walk.
using Visit = bool (*)(const Path &path, void *state);

// Visits each place where the dynamic linker would look for a library of that name, in its order:
// the folders in `library_path` (LD_LIBRARY_PATH, may be NULL), the entries of `cache` (the bytes
// of /etc/ld.so.cache), the folders of the system. True: `visit` ended the walk.
bool each_place(const char *name, const char *library_path, const char *cache, size_t cache_bytes,
                Visit visit, void *state);

// Visits each file in the cache that has that name and is for this machine. Bytes that are no
// cache, and bytes behind the cache's end, have no files.
bool each_in_cache(const char *cache, size_t bytes, const char *name, Visit visit, void *state);

// The first of these places that has a file. Passes over `own`, the interposer's file, and over
// libraries for another machine.
bool find_library(const char *name, const Path &own, Path &ret_path);

// The file of the library that `code` lies in; empty: the dynamic linker does not know.
void find_file_of(const void *code, Path &ret_path);

// Gives a path from the folder of a file. False: the path is too long.
bool beside(const Path &file, const char *tail, Path &ret_path);

} // namespace emm::run
