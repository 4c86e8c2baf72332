#include "monitor/neighbours.h"

#include "catch.h"
#include "driver/shared_group.h"

#include <cstdlib>
#include <filesystem>
#include <iterator>

using namespace emm::driver;

namespace {

constexpr uint64_t budget = uint64_t{64} << 20;

struct Member {
    GroupFile file;
    std::vector<std::unique_ptr<Share>> shares;

    explicit Member(const std::string &path) {
        REQUIRE(join_group(file, path, {{{1, 2}, budget, budget}}, shares).empty());
    }
};

size_t descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return size_t(std::distance(begin(all), end(all)));
}

} // namespace

TEST_CASE("a process of the group that has no socket any more is not waited for, and costs none") {
    char folder[] = "/tmp/emm-group-XXXXXX";
    REQUIRE(mkdtemp(folder));
    std::string path;
    REQUIRE(find_group("job", {folder, ""}, path).empty());
    {
        Member own(path), other(path);
        REQUIRE(other.shares.front()->cover(budget / 2));
        other.file.state().members[other.file.member()].random = 4711; // no process listens there
        group_of_process = &own.file;
        const size_t before = descriptors();
        CHECK_FALSE(emm::monitor::ask_own_group());
        CHECK(descriptors() == before);
        group_of_process = nullptr;
    }
    std::filesystem::remove_all(folder);
}
