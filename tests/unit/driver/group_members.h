// A folder for files of groups that share a budget, and members of such a group.
#pragma once

#include "catch.h"
#include "driver/shared_group.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

inline constexpr uint64_t group_mib = 1 << 20;

class Folder {
public:
    Folder() { REQUIRE(mkdtemp(path_)); }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string path() const { return path_; }
    std::string file() const {
        std::string path;
        REQUIRE(emm::driver::find_group("job", {path_, ""}, path).empty());
        return path;
    }

private:
    char path_[32] = "/tmp/emm-group-XXXXXX";
};

struct Member {
    emm::driver::GroupFile file;
    std::vector<std::unique_ptr<emm::driver::Share>> shares;

    explicit Member(const std::string &path, uint64_t bound = 1024 * group_mib,
                    emm::driver::Uuid uuid = {1, 2}) {
        REQUIRE(
            emm::driver::join_group(file, path, {{uuid, 4096 * group_mib, bound}}, shares).empty());
    }
    emm::driver::Share &share() { return *shares.front(); }
};
