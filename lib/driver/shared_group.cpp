#include "driver/shared_group.h"

#include "observe/descriptors.h"
#include "observe/process.h"
#include "observe/text.h"
#include "sockets/user.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace emm::driver {
namespace {

constexpr uint64_t file_version = 0x656d6d'6c696d69'01; // "emmlimi", and 1
constexpr auto look_again = std::chrono::milliseconds(250);
constexpr size_t longest_name = 64;

std::string is_not_private(const std::string &path, const struct stat &status) {
    if (!sockets::is_this_user(status.st_uid)) {
        return fmt::format("{} belongs to user {}, not to user {}", path, status.st_uid, geteuid());
    }
    if ((status.st_mode & 077) != 0) {
        return fmt::format("{} is open to other users (mode {:04o})", path, status.st_mode & 07777);
    }
    return "";
}

std::string failed(const std::string &path, int error) {
    return fmt::format("{}: {}", path, std::strerror(error));
}

// Makes the folder, or accepts an existing one.
std::string make_private_folder(const std::string &path) {
    struct stat status = {};
    if ((mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) || lstat(path.c_str(), &status) != 0) {
        return failed(path, errno);
    }
    return S_ISDIR(status.st_mode) ? is_not_private(path, status) : path + " is not a folder";
}

bool is_private_folder(const std::string &path) {
    struct stat status = {};
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
           is_not_private(path, status).empty();
}

struct flock lock_of(unsigned member) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = member;
    lock.l_len = 1;
    return lock;
}

// Locks a free slot and returns its number. If there is no free slot, returns `most_members`, and
// errno has the reason.
unsigned lock_slot(int descriptor) noexcept {
    for (unsigned member = 0; member < most_members; member++) {
        struct flock lock = lock_of(member);
        if (fcntl(descriptor, F_OFD_SETLK, &lock) == 0) {
            return member;
        }
        if (errno != EAGAIN && errno != EACCES) {
            return most_members;
        }
    }
    errno = EUSERS;
    return most_members;
}

// If the lock cannot be queried, the member counts as alive.
bool is_locked(int descriptor, unsigned member) noexcept {
    struct flock lock = lock_of(member);
    return fcntl(descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// Reserves all pages now, because a page that is missing later would end the process.
int make_room(int descriptor) noexcept {
    const int error = fallocate(descriptor, 0, 0, sizeof(SharedState)) == 0 ? 0 : errno;
    return error == EOPNOTSUPP && ftruncate(descriptor, sizeof(SharedState)) == 0 ? 0 : error;
}

// A descriptor for a scope. Meanwhile no process forks.
class Opened {
public:
    Opened(const std::string &path, int flags) noexcept
        : descriptor_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)) {}
    ~Opened() {
        if (descriptor_ >= 0) {
            close(descriptor_);
        }
    }
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;
    int get() const { return descriptor_; }

private:
    const observe::NoFork held_;
    const int descriptor_;
};

// A group's file: its status, and its mapping if is_fit() accepts it.
struct Mapped {
    int error = 0;
    struct stat status = {};
    SharedState *state = nullptr;
    unsigned member = most_members;
};
bool is_fit(const struct stat &status) noexcept {
    return S_ISREG(status.st_mode) && sockets::is_this_user(status.st_uid) &&
           (status.st_mode & 077) == 0 && status.st_size == off_t(sizeof(SharedState));
}
Mapped map_file(const std::string &path, bool joins) noexcept {
    Mapped mapped;
    const Opened opened(path, O_RDWR | (joins ? O_CREAT : 0));
    if (opened.get() < 0 || fstat(opened.get(), &mapped.status) != 0) {
        mapped.error = errno;
        return mapped;
    }
    if (joins && S_ISREG(mapped.status.st_mode) && mapped.status.st_size == 0) {
        mapped.error = make_room(opened.get());
        fstat(opened.get(), &mapped.status);
    }
    if (mapped.error != 0 || !is_fit(mapped.status)) {
        return mapped;
    }
    void *const memory =
        mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED, opened.get(), 0);
    if (memory == MAP_FAILED || madvise(memory, sizeof(SharedState), MADV_DONTFORK) != 0 ||
        (joins && (mapped.member = lock_slot(opened.get())) == most_members)) {
        mapped.error = errno;
    }
    mapped.state = memory == MAP_FAILED ? nullptr : static_cast<SharedState *>(memory);
    return mapped;
}

std::string complaint_about(const std::string &path, const Mapped &mapped) {
    const struct stat &status = mapped.status;
    if (mapped.error == EUSERS) {
        return fmt::format("{}: all {} places for processes are taken", path, most_members);
    }
    if (mapped.error != 0) {
        return failed(path, mapped.error);
    }
    if (!S_ISREG(status.st_mode)) {
        return path + " is not a regular file";
    }
    const std::string problem = is_not_private(path, status);
    return !problem.empty() || mapped.state
               ? problem
               : fmt::format(
                     "{}: expected {} bytes, found {}; remove a file of another version of emm",
                     path, sizeof(SharedState), status.st_size);
}

void become_member(SharedState &state, unsigned member) {
    uint64_t ever = state.members_ever.load();
    while (ever <= member && !state.members_ever.compare_exchange_weak(ever, member + 1)) {
    }
    for (SharedDevice &device : state.devices) {
        take_back(device, member, [] { return true; });
    }
    SharedMember &its = state.members[member];
    its.ticket = 0; // this also ends the bounds of the slot's last owner
    for (SharedDevice &device : state.devices) {
        device.slots[member].bound = 0;
    }
    its.random = 0;
    its.pid = static_cast<uint64_t>(getpid());
}

} // namespace

std::string group_name_problem(std::string_view name) {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const bool is_fit =
        !name.empty() && name.size() <= longest_name &&
        letters.find(name.front()) != letters.npos &&
        std::all_of(name.begin(), name.end(), [&](char each) {
            return letters.find(each) != letters.npos ||
                   std::string_view("0123456789._-").find(each) != std::string_view::npos;
        });
    return is_fit ? ""
                  : fmt::format("expected a letter and up to {} more letters, digits, '.', '_' and "
                                "'-', found '{}'",
                                longest_name - 1, observe::one_line(name, 100));
}

std::string find_group(std::string_view name, const GroupFolders &folders, std::string &ret_path) {
    if (std::string problem = group_name_problem(name); !problem.empty()) {
        return problem;
    }
    std::string folder(folders.chosen);
    if (!folder.empty()) {
        struct stat status = {};
        const int error = stat(folder.c_str(), &status) == 0 ? 0 : errno;
        if (error != 0 && error != ENOENT && error != ENOTDIR) {
            return failed("EMM_LIMIT_FOLDER: " + observe::one_line(folder, 200), error);
        }
        if (folder.front() != '/' || error != 0 || !S_ISDIR(status.st_mode)) {
            return fmt::format("EMM_LIMIT_FOLDER: expected the absolute path of a folder, found "
                               "'{}'",
                               observe::one_line(folder, 200));
        }
    } else {
        const std::string runtime(folders.runtime);
        folder = !runtime.empty() && is_private_folder(runtime)
                     ? runtime + "/emm"
                     : fmt::format("/tmp/emm-{}", geteuid());
        if (std::string problem = make_private_folder(folder); !problem.empty()) {
            return problem;
        }
    }
    ret_path = fmt::format("{}/limit-{}", folder, name);
    return "";
}

bool GroupShare::cover(uint64_t bytes, bool takes_reserve) noexcept {
    const auto try_to = [&] {
        const uint64_t units = units_of(bytes);
        if (units_held(device_, member_) >= units) {
            return true;
        }
        const BoundInForce bound = find_bound();
        bounds_differ_ = !bound.is_of_all;
        return hold(device_, member_, units, bound.bytes / shared_unit,
                    takes_reserve && !bounds_differ_);
    };
    return !observe::is_forked_child() && (try_to() || (take_back_dead_(std::nullopt) && try_to()));
}

void GroupShare::return_unused(uint64_t used, bool keeps_reserve) noexcept {
    if (observe::is_forked_child()) {
        return;
    }
    is_above_ = is_above_ && units_taken(device_) > bound() / shared_unit;
    const uint64_t held = units_held(device_, member_), units = units_of(used);
    const uint64_t unused = held > units ? held - units : 0;
    const bool keeps = keeps_reserve && !is_above_ && !bounds_differ_;
    give_back(device_, member_, keeps ? units_to_return(unused) : unused);
}

void GroupShare::count(uint64_t bytes) noexcept {
    if (!observe::is_forked_child() && units_of(bytes) > units_held(device_, member_)) {
        driver::count(device_, member_, units_of(bytes));
        is_above_ = true;
    }
}

// If the bounds differ, that of a member which has died is not in force.
BoundInForce GroupShare::find_bound() const noexcept {
    for (;;) {
        const BoundInForce found = bound_in_force(state_, device_);
        if (found.is_of_all || found.member == member_ || !take_back_dead_(found.member)) {
            return found;
        }
    }
}

uint64_t GroupShare::bound() const noexcept {
    return observe::is_forked_child() ? 0 : find_bound().bytes;
}

Others GroupShare::others() noexcept {
    if (observe::is_forked_child()) {
        return {};
    }
    if (const auto now = std::chrono::steady_clock::now(); now - looked_ > look_again) {
        looked_ = now;
        take_back_dead_(std::nullopt);
    }
    const uint64_t taken = units_taken(device_), own = units_held(device_, member_);
    return {taken > own ? (taken - own) * shared_unit : 0, 0};
}

void GroupFile::close() noexcept {
    if (state_) {
        munmap(state_, sizeof *state_);
    }
    state_ = nullptr;
}

std::string GroupFile::open(const std::string &path, bool joins) {
    const Mapped mapped = map_file(path, joins);
    state_ = mapped.state;
    path_ = path;
    member_ = mapped.member;
    device_ = mapped.status.st_dev;
    file_ = mapped.status.st_ino;
    std::string problem = complaint_about(path, mapped);
    uint64_t version = 0;
    if (problem.empty() && !state_->version.compare_exchange_strong(version, file_version) &&
        version != file_version) {
        problem = fmt::format(
            "{}: expected version {:x}, found {:x}; remove a file of another version of emm", path,
            file_version, version);
    }
    if (!problem.empty()) {
        close();
    } else if (joins) {
        become_member(*state_, member_);
    }
    return problem;
}

bool GroupFile::take_back_dead(std::optional<unsigned> one) const noexcept {
    const Opened opened(path_, O_RDWR);
    struct stat status = {};
    if (opened.get() < 0 || fstat(opened.get(), &status) != 0 || status.st_dev != device_ ||
        status.st_ino != file_) {
        return false;
    }
    bool has_any = false;
    const unsigned first = one.value_or(0), end = one ? *one + 1 : slots_in_use(*state_);
    for (unsigned member = first; member < end; member++) {
        const auto is_dead = [&opened, member] { return !is_locked(opened.get(), member); };
        uint64_t ticket = state_->members[member].ticket.load();
        if (ticket == 0 || !is_dead()) {
            continue;
        }
        for (SharedDevice &device : state_->devices) {
            has_any |= take_back(device, member, is_dead);
        }
        has_any |= state_->members[member].ticket.compare_exchange_strong(ticket, 0);
    }
    return has_any;
}

std::string join_group(GroupFile &file, const std::string &path,
                       const std::vector<GroupDevice> &devices,
                       std::vector<std::unique_ptr<Share>> &ret_shares) {
    if (std::string problem = file.open(path, true); !problem.empty()) {
        return problem;
    }
    SharedState &state = file.state();
    std::vector<std::unique_ptr<Share>> shares;
    for (const GroupDevice &device : devices) {
        SharedDevice *const row = row_of(state, device.uuid, device.bytes);
        if (!row) {
            file.close();
            return fmt::format("{}: all {} places for devices are taken", path,
                               most_shared_devices);
        }
        row->slots[file.member()].bound = device.bound;
        shares.push_back(std::make_unique<GroupShare>(
            state, *row, file.member(),
            [&file](std::optional<unsigned> one) { return file.take_back_dead(one); }));
    }
    state.members[file.member()].ticket = state.last_ticket.fetch_add(1) + 1;
    file.take_back_dead();
    ret_shares = std::move(shares);
    return "";
}

std::string uuid_text_of(const SharedDevice &device) {
    const uint64_t halves[2] = {device.uuid[0], device.uuid[1]};
    uint8_t bytes[16];
    std::memcpy(bytes, halves, sizeof bytes);
    return uuid_text(bytes);
}

std::string above_bounds_text(const GroupFile &file) {
    SharedState &state = file.state();
    for (const SharedDevice &row : state.devices) {
        const uint64_t bound = row.key.load() == 0 ? 0 : bound_in_force(state, row).bytes;
        const uint64_t taken = units_taken(row) * shared_unit;
        if (bound != 0 && taken > bound) {
            return above_limit_text(taken, uuid_text_of(row));
        }
    }
    return "";
}

std::string change_bounds(const GroupFile &file, const std::vector<Limit> &limits) {
    SharedState &state = file.state();
    std::vector<SharedDevice *> rows;
    std::vector<LimitedDevice> devices;
    for (SharedDevice &row : state.devices) {
        if (row.key.load() != 0 && bound_in_force(state, row).bytes != 0) {
            rows.push_back(&row);
            devices.push_back({uuid_text_of(row), row.bytes.load(), 0});
        }
    }
    if (std::string problem = apply_limits(limits, devices); !problem.empty()) {
        return problem;
    }
    for (size_t i = 0; i < rows.size(); i++) {
        for (unsigned member = 0; member < slots_in_use(state) && devices[i].bound != 0; member++) {
            std::atomic<uint64_t> &bound = rows[i]->slots[member].bound;
            bound = bound.load() != 0 ? devices[i].bound : 0;
        }
    }
    return "";
}

} // namespace emm::driver
