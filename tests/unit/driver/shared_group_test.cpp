#include "driver/shared_group.h"

#include "group_members.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace emm::driver;

namespace {

struct BytesOfPool {
    uint64_t reserved = 0, used = 0;
};
BytesOfPool pool_bytes[3]; // the driver's figures, by handle
std::optional<uint64_t> tell_pool(uint64_t pool, PoolFigure which) {
    return which == PoolFigure::used ? pool_bytes[pool].used : pool_bytes[pool].reserved;
}
// A pool of 64 MiB, most of it idle.
void begin_pool(Account &account, Share &share, uint64_t pool) {
    account.set_share(0, &share);
    REQUIRE(account.keep(account.take({0, Holder::managers, Kind::pool}), pool));
    const uint64_t growth = account.take_growth(pool, 64 * group_mib);
    REQUIRE(growth != 0);
    pool_bytes[pool] = {64 * group_mib, 8 * group_mib};
    account.give(growth);
}

std::string complaint(const std::string &path) {
    GroupFile file;
    std::vector<std::unique_ptr<Share>> shares;
    return join_group(file, path, {{{1, 2}, 4096 * group_mib, 64 * group_mib}}, shares);
}

} // namespace

TEST_CASE("a group's name is a letter and up to 63 more characters that no shell and folder mind") {
    for (const char *good : {"a", "job-17", "A.b_c"}) {
        CHECK(group_name_problem(good).empty());
    }
    for (const std::string &bad :
         {std::string(), std::string("17"), std::string("../x"), std::string("a b"),
          std::string("a/b"), std::string("\xc3\xa4"), std::string(65, 'a'), std::string("a\n")}) {
        CHECK_THAT(group_name_problem(bad), ContainsSubstring("expected a letter"));
    }
}

TEST_CASE("a group lies in the folder of choice, else in one for its user alone") {
    const Folder folder;
    std::string path;
    CHECK(find_group("job", {folder.path(), "/nowhere"}, path).empty());
    CHECK(path == folder.path() + "/limit-job");
    CHECK(find_group("job", {"", folder.path()}, path).empty());
    CHECK(path == folder.path() + "/emm/limit-job");
    chmod(folder.path().c_str(), 0755); // is none of the user alone
    CHECK(find_group("job", {"", folder.path()}, path).empty());
    CHECK_THAT(path, ContainsSubstring("/tmp/emm-"));
    CHECK_THAT(find_group("job", {"relative", ""}, path), ContainsSubstring("EMM_LIMIT_FOLDER"));
    CHECK_THAT(find_group("job", {folder.path() + "/none", ""}, path),
               ContainsSubstring("EMM_LIMIT_FOLDER"));
}

TEST_CASE("a folder of emm's that other users can write to is refused") {
    const Folder folder;
    std::string path;
    REQUIRE(mkdir((folder.path() + "/emm").c_str(), 0700) == 0);
    chmod((folder.path() + "/emm").c_str(), 0777);
    CHECK_THAT(find_group("job", {"", folder.path()}, path), ContainsSubstring("(mode 0777)"));
}

TEST_CASE("two members share one budget for a device, and none for two devices") {
    const Folder folder;
    Member one(folder.file()), other(folder.file()),
        elsewhere(folder.file(), 1024 * group_mib, {3, 4});
    CHECK(one.share().cover(700 * group_mib));
    CHECK_FALSE(other.share().cover(325 * group_mib));
    CHECK(other.share().cover(324 * group_mib));
    CHECK(other.share().others().processes == 700 * group_mib);
    CHECK(elsewhere.share().cover(1024 * group_mib));
    one.share().return_unused(100 * group_mib, false);
    CHECK(other.share().cover(924 * group_mib));
}

// A pool of CUDA's may grow although what it is asked for fits into its idle memory.
TEST_CASE("what the pool of one member has taken above the bound is known to the others") {
    const Folder folder;
    Member one(folder.file(), 128 * group_mib), other(folder.file(), 128 * group_mib);
    Account account(&tell_pool), others(&tell_pool);
    begin_pool(account, one.share(), 1);
    begin_pool(others, other.share(), 2);
    const uint64_t fits = account.take_growth(1, 8 * group_mib);
    REQUIRE(fits != 0);
    pool_bytes[1].reserved += 32 * group_mib;
    CHECK(account.exceeds(fits));
    account.give(fits);
    CHECK(other.share().others().processes == 96 * group_mib);
    const uint64_t idle = others.take_growth(2, 8 * group_mib);
    CHECK(idle != 0);
    CHECK_FALSE(others.exceeds(idle)); // that pool has not grown
    others.give(idle);
    pool_bytes[1].reserved -= 32 * group_mib; // trimmed
    account.refresh(0);
    CHECK(other.share().others().processes == 64 * group_mib);
}

TEST_CASE("pairs within a step write nothing that members share") {
    const Folder folder;
    Member one(folder.file());
    const std::atomic<uint64_t> &word = row_of(one.file.state(), {1, 2}, 4096 * group_mib)->word;
    CHECK(one.share().cover(group_mib));
    const uint64_t before = word;
    for (int i = 0; i < 1000; i++) {
        CHECK(one.share().cover(17 * group_mib));
        one.share().return_unused(group_mib, true);
    }
    CHECK(word == before);
}

TEST_CASE("a member that has left takes nothing with it") {
    const Folder folder;
    Member other(folder.file());
    {
        Member one(folder.file());
        CHECK(one.share().cover(1000 * group_mib));
    }
    CHECK(other.share().cover(1024 * group_mib));
}

TEST_CASE("a forked child has no part in the budget, and keeps nothing of its parent's in it") {
    const Folder folder;
    Member one(folder.file());
    CHECK(one.share().cover(1000 * group_mib));
    int hold[2];
    REQUIRE(pipe(hold) == 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
    one.file.close(); // as the kernel does when the parent ends
    Member other(folder.file());
    CHECK(other.share().cover(1024 * group_mib));
    close(hold[0]);
    close(hold[1]);
    int status = 1;
    CHECK((waitpid(child, &status, 0) == child && status == 0));
}

TEST_CASE("the bound of the first member holds until it has left") {
    const Folder folder;
    auto first = std::make_unique<Member>(folder.file(), 512 * group_mib);
    Member second(folder.file(), 1024 * group_mib);
    CHECK(second.share().bound() == 512 * group_mib);
    CHECK_FALSE(second.share().cover(513 * group_mib));
    first.reset();
    CHECK(second.share().cover(513 * group_mib));
    CHECK(second.share().bound() == 1024 * group_mib);
}

TEST_CASE("a larger bound of a first member that has left lets no other exceed its own") {
    const Folder folder;
    auto first = std::make_unique<Member>(folder.file(), 512 * group_mib);
    Member second(folder.file(), 64 * group_mib);
    CHECK(second.share().bound() == 512 * group_mib);
    first.reset();
    CHECK_FALSE(second.share().cover(65 * group_mib));
    CHECK(second.share().bound() == 64 * group_mib);
}

TEST_CASE("where limits differ, no reserve is taken that a smaller limit would not allow") {
    const Folder folder;
    auto first = std::make_unique<Member>(folder.file(), 512 * group_mib);
    Member second(folder.file(), 64 * group_mib);
    CHECK(second.share().cover(62 * group_mib));
    CHECK(first->share().others().processes == 62 * group_mib);
    first.reset();
    CHECK_FALSE(second.share().cover(65 * group_mib));
    CHECK(second.share().cover(64 * group_mib));
}

TEST_CASE("an account that keeps no reserves gives all back that is freed, and takes none") {
    const Folder folder;
    Member one(folder.file()), other(folder.file());
    Account account(&tell_pool);
    account.set_share(0, &one.share());
    const auto taken_and_freed = [&] {
        const uint64_t id = account.take({0, Holder::program, Kind::array, 48 * group_mib});
        REQUIRE(account.keep(id));
        account.give(id);
        return other.share().others().processes;
    };
    const uint64_t reserve = taken_and_freed();
    CHECK(reserve > 0);
    account.keep_reserves(false);
    CHECK(other.share().others().processes == 0);
    CHECK(taken_and_freed() == 0);
    const uint64_t id = account.take({0, Holder::program, Kind::array, 48 * group_mib});
    CHECK(other.share().others().processes == 48 * group_mib);
    account.give(id);
    account.keep_reserves(true);
    CHECK(taken_and_freed() == reserve);
}

TEST_CASE("the bound of a group that has ended does not hold for the next one") {
    const Folder folder;
    { Member before(folder.file(), 64 * group_mib); }
    Member now(folder.file(), 128 * group_mib);
    CHECK(now.share().bound() == 128 * group_mib);
    CHECK(now.share().cover(128 * group_mib));
}

TEST_CASE("a changed bound holds for all at once, and takes nothing from a member") {
    const Folder folder;
    Member one(folder.file()), other(folder.file());
    CHECK(one.share().cover(600 * group_mib));
    const auto change = [&](uint64_t bytes) {
        return change_bounds(other.file, {Limit{"", bytes}});
    };
    CHECK(change(512 * group_mib).empty());
    CHECK(one.share().cover(600 * group_mib));
    CHECK_FALSE(one.share().cover(601 * group_mib));
    CHECK_FALSE(other.share().cover(group_mib));
    one.share().return_unused(500 * group_mib, false);
    CHECK(other.share().cover(12 * group_mib));
    CHECK(change(2048 * group_mib).empty());
    CHECK(other.share().cover(1500 * group_mib));
    CHECK_THAT(change(8192 * group_mib), ContainsSubstring("expected at most"));
    CHECK_THAT(change_bounds(other.file, {Limit{"GPU-77", group_mib * 4}}),
               ContainsSubstring("expected the UUID of a device"));
}

// The first files of two new file systems have the same number.
TEST_CASE("another file system's file is not taken for the group's, whatever its number") {
    const Folder folder;
    const std::string place = folder.path() + "/now", here = folder.path() + "/here",
                      there = folder.path() + "/there";
    std::filesystem::create_directory(here);
    std::filesystem::create_directory(there);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", here.c_str(), "tmpfs", 0, "size=8m") != 0 ||
        mount("none", there.c_str(), "tmpfs", 0, "size=8m") != 0) {
        WARN("skipped: no file system can be mounted");
        return;
    }
    {
        std::filesystem::create_directory_symlink(here, place);
        Member one(place + "/limit-job"), other(place + "/limit-job");
        CHECK(other.share().cover(1000 * group_mib));
        std::filesystem::remove(place);
        std::filesystem::create_directory_symlink(there, place);
        Member stranger(place + "/limit-job");
        struct stat own = {}, strange = {};
        REQUIRE(stat((here + "/limit-job").c_str(), &own) == 0);
        REQUIRE(stat((there + "/limit-job").c_str(), &strange) == 0);
        if (own.st_ino != strange.st_ino) {
            WARN("the numbers differ on this kernel");
        }
        CHECK_FALSE(one.file.take_back_dead()); // in the stranger's file, `other` has no lock
        CHECK(one.share().others().processes == 1000 * group_mib);
    }
    CHECK(umount(here.c_str()) == 0);
    CHECK(umount(there.c_str()) == 0);
}

TEST_CASE("the 513th process is refused, in one sentence") {
    const Folder folder;
    std::vector<std::unique_ptr<Member>> members;
    for (unsigned i = 0; i < most_members; i++) {
        members.push_back(std::make_unique<Member>(folder.file()));
    }
    CHECK_THAT(complaint(folder.file()),
               ContainsSubstring("all 512 places for processes are taken"));
    members.pop_back();
    CHECK(complaint(folder.file()).empty());
}

TEST_CASE("a file that is no group's is refused, in one sentence, and is left as it is") {
    const Folder folder;
    const std::string path = folder.file();
    const auto write = [&](const std::string &bytes) {
        std::ofstream(path, std::ios::trunc) << bytes;
        chmod(path.c_str(), 0600);
    };
    write("short");
    CHECK_THAT(complaint(path), ContainsSubstring("found 5"));
    CHECK(std::filesystem::file_size(path) == 5);
    write("another version" + std::string(sizeof(SharedState) - 15, '\0'));
    CHECK_THAT(complaint(path), ContainsSubstring("of another version"));
    write("");
    chmod(path.c_str(), 0644);
    CHECK_THAT(complaint(path), ContainsSubstring("(mode 0644)"));
    CHECK(std::filesystem::remove(path));
    std::filesystem::create_symlink("/dev/null", path);
    CHECK_THAT(complaint(path), ContainsSubstring(std::strerror(ELOOP)));
    CHECK(std::filesystem::remove(path));
    std::filesystem::create_directory(path);
    CHECK_THAT(complaint(path), ContainsSubstring(std::strerror(EISDIR)));
    CHECK(std::filesystem::remove(path));
    if (geteuid() == 0) {
        write("");
        REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
        CHECK_THAT(complaint(path), ContainsSubstring("belongs to user 65534"));
    }
}
