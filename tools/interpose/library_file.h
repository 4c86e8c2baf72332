// Where a library lies, behind the interposer that has its name.
#pragma once

#include <limits.h>
#include <stddef.h>

namespace emm::run {

struct Path {
    char text[PATH_MAX];
};

// What a walk calls for each path, with the caller's state; true ends the walk.
using Visit = bool (*)(const Path &path, void *state);

// Each place where the dynamic linker would look for a library of that name, in that order: the
// folders in `library_path` (LD_LIBRARY_PATH, may be NULL), what `cache` (the bytes of
// /etc/ld.so.cache) has, the folders of the system. True: `visit` ended the walk.
bool each_place(const char *name, const char *library_path, const char *cache, size_t cache_bytes,
                Visit visit, void *state);

// Each file in the cache that has that name and is for this machine. What is no cache has none, nor
// has what lies behind its end.
bool each_in_cache(const char *cache, size_t bytes, const char *name, Visit visit, void *state);

// The first of these places that has a file, other than `own`, the interposer's, and than libraries
// for another machine.
bool find_library(const char *name, const Path &own, Path &ret_path);

// The file of the library that `code` lies in; empty: it is not known.
void find_file_of(const void *code, Path &ret_path);

// A path from the folder of a file. False: it is too long.
bool beside(const Path &file, const char *tail, Path &ret_path);

} // namespace emm::run
