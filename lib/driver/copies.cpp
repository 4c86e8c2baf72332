// A copy of libemm finds the first copy by a page of memory whose name appears in /proc/self/maps.
// A symbol would not do: a static copy exports none, and a copy loaded by dlmopen has a namespace
// of its own. The whole process has one lock of dl_iterate_phdr, so two copies never look at the
// same time.
#include "driver/copies.h"

#include "driver/shared_group.h"
#include "observe/descriptors.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/read_write.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <mutex>
#include <new>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace emm::driver {
namespace {

constexpr char page_name[] = "emm-account";
constexpr uint64_t page_mark = 0x656d6d'61636374'00; // "emmacct"
constexpr uint64_t calls_version = 2;
constexpr size_t most_copies = 16;

struct Page {
    uint64_t mark;
    const CopyCalls *calls;
};

bool has_limits = false; // guarded by limits_mutex

// The copies that count here, by their numbers minus one.
std::atomic<const CopyCalls *> joined[most_copies]{};

// The copy where this one counts, and its number there.
std::atomic<const CopyCalls *> first{nullptr};
uint64_t number = 0;

template <class Visit> void visit_joined(uint64_t left_out, Visit visit) {
    for (uint64_t i = 0; i < most_copies; i++) {
        const CopyCalls *const calls = joined[i].load();
        if (calls && i + 1 != left_out) {
            visit(*calls);
        }
    }
}

uint64_t join(const CopyCalls *other) {
    const std::lock_guard lock(limits_mutex);
    for (uint64_t i = 0; i < most_copies && has_limits; i++) {
        const CopyCalls *none = nullptr;
        if (joined[i].compare_exchange_strong(none, other)) {
            return i + 1;
        }
    }
    return 0;
}

void refresh(uint64_t copy, int32_t device) {
    account().refresh(device);
    visit_joined(copy, [&](const CopyCalls &calls) { calls.refresh(0, device); });
}

void give_back(uint64_t copy) {
    give_back_idle();
    visit_joined(copy, [](const CopyCalls &calls) { calls.give_back(0); });
}

void publish_own_socket(uint64_t random) {
    if (const GroupFile *const group = group_of_process.load(std::memory_order_acquire)) {
        group->state().members[group->member()].random = random;
    }
}

constexpr CopyCalls own_calls = {
    calls_version,
    &join,
    [](uint64_t copy, int32_t device, uint64_t bytes) {
        return account().cover(copy, device, bytes);
    },
    [](uint64_t copy, int32_t device, uint64_t used, bool keeps_reserve) {
        account().return_unused(copy, device, used, keeps_reserve);
    },
    [](int32_t device) { return account().bound(device); },
    [](uint64_t copy, int32_t device, uint64_t *ret_processes, uint64_t *ret_copies) {
        const Others others = account().others_of(copy, device);
        *ret_processes = others.processes;
        *ret_copies = others.copies;
    },
    [](int32_t device, uint64_t bytes) { account().set_bound(device, bytes); },
    &publish_own_socket,
    [] { return ask_own_group(); },
    &refresh,
    &give_back};

// The calls of the first copy, which may be this one.
const CopyCalls &calls_of_first() {
    const CopyCalls *const calls = first;
    return calls ? *calls : own_calls;
}

class CopysShare : public Share {
public:
    explicit CopysShare(int32_t device) : device_(device) {}
    bool cover(uint64_t bytes, bool) noexcept override {
        return calls_of_first().cover(number, device_, bytes);
    }
    void return_unused(uint64_t used, bool keeps_reserve) noexcept override {
        calls_of_first().return_unused(number, device_, used, keeps_reserve);
    }
    uint64_t bound() const noexcept override { return calls_of_first().bound(device_); }
    void set_bound(uint64_t bytes) noexcept override { calls_of_first().set_bound(device_, bytes); }
    Others others() noexcept override {
        Others others;
        calls_of_first().others(number, device_, &others.processes, &others.copies);
        return others;
    }

private:
    const int32_t device_;
};

// Throws std::system_error if the kernel does not tell.
const CopyCalls *find_calls() {
    std::string maps;
    if (const int error = observe::read_file("/proc/self/maps", maps)) {
        throw std::system_error(error, std::generic_category(), "/proc/self/maps");
    }
    const size_t found = maps.find(std::string("/memfd:") + page_name + " ");
    if (found == maps.npos) {
        return nullptr;
    }
    const size_t line = maps.rfind('\n', found) + 1; // npos + 1 is 0: the first line
    const auto *const page =
        reinterpret_cast<const Page *>(std::strtoull(maps.c_str() + line, nullptr, 16));
    return page && page->mark == page_mark ? page->calls : nullptr;
}

// Makes the page, which a forked child does not inherit. False, with errno: without the page, each
// copy has a bound of its own.
bool publish() noexcept {
    void *page = MAP_FAILED;
    int error = 0;
    {
        const observe::NoFork held;
        const int file = memfd_create(page_name, MFD_CLOEXEC);
        if (file >= 0 && ftruncate(file, sizeof(Page)) == 0) {
            page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        }
        error = page == MAP_FAILED ? errno : 0;
        if (file >= 0) {
            close(file);
        }
    }
    if (page != MAP_FAILED) {
        madvise(page, sizeof(Page), MADV_DONTFORK);
        new (page) Page{page_mark, &own_calls};
    }
    errno = error;
    return error == 0;
}

struct Search {
    const CopyCalls *found = nullptr;
    int error = 0; // why other copies of libemm and this one cannot find each other
};

Search find_or_publish() noexcept {
    Search search;
    dl_iterate_phdr(
        [](dl_phdr_info *, size_t, void *ret_search) noexcept {
            auto &[found, error] = *static_cast<Search *>(ret_search);
            try {
                found = find_calls();
            } catch (const std::system_error &failure) {
                error = failure.code().value();
            } catch (const std::bad_alloc &) {
                error = ENOMEM;
            }
            if (!found && !publish()) {
                error = errno;
            }
            return 1;
        },
        &search);
    return search;
}

void refresh_copies(int32_t device) noexcept {
    if (const CopyCalls *const calls = first) {
        calls->refresh(number, device);
    }
    visit_joined(0, [&](const CopyCalls &calls) { calls.refresh(0, device); });
}

} // namespace

std::mutex limits_mutex;

void note_limits_read() noexcept {
    has_limits = true;
}

bool is_first_copy() noexcept {
    account().on_refresh(&refresh_copies);
    const auto [found, error] = find_or_publish();
    if (error != 0) {
        observe::log(EMM_LOG_WARN,
                     "EMM_LIMIT: other copies of libemm in this process cannot count for this one "
                     "({}): each has a bound of its own",
                     std::strerror(error));
    }
    if (!found || found == &own_calls) {
        return true;
    }
    number = found->version == calls_version ? found->join(&own_calls) : 0;
    if (number == 0) {
        observe::log(EMM_LOG_WARN, "EMM_LIMIT: the process has another copy of libemm; the copies "
                                   "cannot count together, so each has the whole limit");
        return true;
    }
    first = found;
    return false;
}

std::unique_ptr<Share> share_of_first_copy(int32_t device) {
    return std::make_unique<CopysShare>(device);
}

bool ask_copies() noexcept {
    bool has_any = false;
    if (const CopyCalls *const calls = first) {
        calls->give_back(number);
        has_any = true;
    }
    visit_joined(0, [&](const CopyCalls &calls) {
        calls.give_back(0);
        has_any = true;
    });
    return has_any;
}

void publish_socket(uint64_t random) noexcept {
    calls_of_first().publish_socket(random);
}

bool ask_group() noexcept {
    return calls_of_first().ask_group();
}

} // namespace emm::driver
