#include "library_file.h"

#include "catch.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

using namespace emm::run;

namespace {

#if defined(__aarch64__)
constexpr int32_t this_machine = 0x0a03;
#else
constexpr int32_t this_machine = 0x0303;
#endif

struct CachedFile {
    std::string name, path;
    int32_t flags = this_machine;
};

void append(std::string &bytes, const void *data, size_t size) {
    bytes.append(static_cast<const char *>(data), size);
}

// A cache of the dynamic linker, as glibc writes it.
std::string cache_of(const std::vector<CachedFile> &files) {
    std::string bytes = "glibc-ld.so.cache1.1", texts;
    const uint32_t count = uint32_t(files.size()), zeros[6] = {};
    append(bytes, &count, sizeof count);
    append(bytes, zeros, sizeof zeros);
    const size_t texts_at = bytes.size() + files.size() * 24;
    for (const CachedFile &file : files) {
        const uint32_t name = uint32_t(texts_at + texts.size());
        texts += file.name + '\0';
        const uint32_t path = uint32_t(texts_at + texts.size());
        texts += file.path + '\0';
        append(bytes, &file.flags, 4);
        append(bytes, &name, 4);
        append(bytes, &path, 4);
        append(bytes, zeros, 12);
    }
    return bytes + texts;
}

// A cache as glibc before 2.32 writes it: the form of 2.1 with `old_files` entries of 12 bytes, and
// the new form behind it at a multiple of 8.
std::string old_cache_of(uint32_t old_files, const std::vector<CachedFile> &files) {
    std::string bytes("ld.so-1.7.0", 12);
    append(bytes, &old_files, sizeof old_files);
    bytes.resize((bytes.size() + size_t{old_files} * 12 + 7) / 8 * 8);
    return bytes + cache_of(files);
}

using Paths = std::vector<std::string>;

bool note(const Path &path, void *state) {
    static_cast<Paths *>(state)->push_back(path.text);
    return false;
}

Paths in_cache(const std::string &bytes) {
    Paths paths;
    each_in_cache(bytes.data(), bytes.size(), "libcuda.so.1", note, &paths);
    return paths;
}

Paths places(const char *library_path, const std::string &cache) {
    Paths paths;
    each_place("libcuda.so.1", library_path, cache.data(), cache.size(), note, &paths);
    return paths;
}

} // namespace

TEST_CASE("the linker's cache tells where a library of this machine lies") {
    const std::string cache = cache_of({{"libc.so.6", "/lib/libc.so.6"},
                                        {"libcuda.so.1", "/lib32/libcuda.so.1", 0x0003},
                                        {"libcuda.so.1", "/x/libcuda.so.1"},
                                        {"libcuda.so.1", "/y/libcuda.so.1"}});
    CHECK(in_cache(cache) == Paths{"/x/libcuda.so.1", "/y/libcuda.so.1"});
}

TEST_CASE("a cache that begins in the form of glibc 2.1 tells it behind that") {
    for (const uint32_t old_files : {0U, 1U, 2U, 3U, 1000U}) {
        INFO(old_files << " files in the old form");
        CHECK(in_cache(old_cache_of(old_files, {{"libcuda.so.1", "/lib32/libcuda.so.1", 0x0003},
                                                {"libcuda.so.1", "/x/libcuda.so.1"}})) ==
              Paths{"/x/libcuda.so.1"});
    }
}

TEST_CASE("what is no cache, or is cut off anywhere, has nothing behind its end") {
    CHECK(in_cache("").empty());
    CHECK(in_cache(std::string(1000, 'x')).empty());
    const std::vector<CachedFile> files = {{"libcuda.so.1", "/x/libcuda.so.1"}};
    for (const std::string &cache : {cache_of(files), old_cache_of(3, files)}) {
        for (size_t size = 0; size < cache.size(); size++) {
            INFO(size << " bytes of " << cache.size());
            const std::vector<char> cut(cache.begin(), cache.begin() + std::ptrdiff_t(size));
            Paths paths;
            each_in_cache(cut.data(), cut.size(), "libcuda.so.1", note, &paths);
            CHECK(paths.empty());
        }
    }
}

TEST_CASE("a cache whose old form is longer than the file has nothing") {
    for (const uint32_t count : {4U, 5U, 1000U, 0x7fffffffU, 0xffffffffU}) {
        std::string cache = old_cache_of(3, {{"libcuda.so.1", "/x/libcuda.so.1"}});
        std::memcpy(cache.data() + 12, &count, sizeof count);
        CHECK(in_cache(cache).empty());
    }
}

TEST_CASE("a cache that counts more files than it has gives those that it has") {
    std::string cache = cache_of({{"libcuda.so.1", "/x/libcuda.so.1"}});
    const uint32_t count = 0xffffffff;
    std::memcpy(cache.data() + 20, &count, sizeof count);
    CHECK(in_cache(cache) == Paths{"/x/libcuda.so.1"});
}

TEST_CASE("a library is looked for where the dynamic linker would look, in its order") {
    const Paths found = places("/a:/b", cache_of({{"libcuda.so.1", "/x/libcuda.so.1"}}));
    REQUIRE(found.size() > 4);
    CHECK(found[0] == "/a/libcuda.so.1");
    CHECK(found[1] == "/b/libcuda.so.1");
    CHECK(found[2] == "/x/libcuda.so.1");
    CHECK(found[3].find("/lib") == 0);
}

TEST_CASE("an empty folder in LD_LIBRARY_PATH is the current one, and no variable has none") {
    CHECK(places("/a::/b", "")[1] == "./libcuda.so.1");
    CHECK(places("/a:", "")[1] == "./libcuda.so.1");
    CHECK(places("", "")[0].find("/lib") == 0);
    CHECK(places(nullptr, "")[0].find("/lib") == 0);
}

TEST_CASE("a folder whose path is too long is passed over") {
    const std::string folder = "/" + std::string(PATH_MAX, 'x');
    CHECK(places((folder + ":/b").c_str(), "")[0] == "/b/libcuda.so.1");
}

TEST_CASE("the walk ends where the visitor has found what it wants") {
    Path found = {};
    const auto first = [](const Path &path, void *state) {
        *static_cast<Path *>(state) = path;
        return true;
    };
    CHECK(each_place("libcuda.so.1", "/a:/b", nullptr, 0, first, &found));
    CHECK(found.text == std::string("/a/libcuda.so.1"));
}

TEST_CASE("what lies beside a file is in its folder, and a path that is too long is none") {
    Path path = {};
    CHECK(beside({"/a/b/libx.so"}, "c/d", path));
    CHECK(path.text == std::string("/a/b/c/d"));
    CHECK(beside({"libx.so"}, "c", path));
    CHECK(path.text == std::string("./c"));
    CHECK_FALSE(beside({"/a/b"}, std::string(PATH_MAX, 'x').c_str(), path));
}

TEST_CASE("the file of a function is the one that it was loaded from") {
    Path path = {};
    find_file_of(reinterpret_cast<void *>(&find_file_of), path);
    CHECK(std::string(path.text).find("test-interpose") != std::string::npos);
    find_file_of(nullptr, path);
    CHECK(path.text == std::string());
}

namespace {

// A folder with a file of that name; the destructor removes both.
struct FolderWith {
    FolderWith(const std::string &name, const std::string &bytes) {
        REQUIRE(mkdtemp(folder));
        file = std::string(folder) + "/" + name;
        const int opened = creat(file.c_str(), 0600);
        REQUIRE(write(opened, bytes.data(), bytes.size()) == ssize_t(bytes.size()));
        REQUIRE(close(opened) == 0);
    }
    FolderWith(const FolderWith &) = delete;
    FolderWith &operator=(const FolderWith &) = delete;
    ~FolderWith() {
        unlink(file.c_str());
        rmdir(folder);
    }

    char folder[32] = "/tmp/emm-test-XXXXXX";
    std::string file;
};

// The beginning of a library.
std::string library_of(unsigned char elf_class, uint16_t machine) {
    std::string bytes(sizeof(Elf64_Ehdr), '\0');
    std::memcpy(bytes.data(), ELFMAG, SELFMAG);
    bytes[EI_CLASS] = char(elf_class);
    std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
    return bytes;
}

} // namespace

TEST_CASE("the file that asks is not what is found") {
    const FolderWith only("libemm-test.so.1", "");
    Path own = {}, found = {};
    std::snprintf(own.text, sizeof own.text, "%s", only.file.c_str());
    REQUIRE(setenv("LD_LIBRARY_PATH", only.folder, 1) == 0);
    CHECK_FALSE(find_library("libemm-test.so.1", own, found));
    CHECK(find_library("libemm-test.so.1", {"/elsewhere"}, found));
    CHECK(found.text == only.file);
}

TEST_CASE("a library for another machine is passed over, as the dynamic linker does") {
#if defined(__aarch64__)
    constexpr uint16_t own_machine = EM_AARCH64, other_machine = EM_X86_64;
#else
    constexpr uint16_t own_machine = EM_X86_64, other_machine = EM_AARCH64;
#endif
    const std::string own = library_of(ELFCLASS64, own_machine);
    for (const std::string &other :
         {library_of(ELFCLASS32, EM_386), library_of(ELFCLASS32, own_machine),
          library_of(ELFCLASS64, other_machine)}) {
        const FolderWith first("libemm-test.so.1", other), second("libemm-test.so.1", own);
        const std::string folders = std::string(first.folder) + ":" + second.folder;
        REQUIRE(setenv("LD_LIBRARY_PATH", folders.c_str(), 1) == 0);
        Path found = {};
        CHECK(find_library("libemm-test.so.1", {"/elsewhere"}, found));
        CHECK(found.text == second.file);
    }
}
