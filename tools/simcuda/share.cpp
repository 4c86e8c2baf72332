#include "share.h"

#include "simulator.h"

#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {
namespace {

constexpr uint64_t ticket_magic = 0x74656b6369746d73; // "smticket"

constexpr uint64_t ticket_room = 64;
static_assert(sizeof(Ticket) <= ticket_room);

int open_again(int descriptor) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return open(path, O_RDWR | O_CLOEXEC);
}

// A lock of the open file, shared by all processes that have it open through this descriptor.
struct flock lock_of(uint64_t place, int type) {
    struct flock lock = {};
    lock.l_type = static_cast<short>(type);
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(place);
    lock.l_len = 1;
    return lock;
}

bool set_lock(int descriptor, uint64_t place, int type) {
    struct flock lock = lock_of(place, type);
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

bool same_file(int a, int b) {
    struct stat left, right;
    return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
           left.st_ino == right.st_ino;
}

bool is_imported_from(const Store &store) {
    const auto &pools = sim().pools;
    return !store.held.empty() || sim().regions.has_any_of(store) ||
           std::any_of(pools.begin(), pools.end(),
                       [&](const auto &pool) { return pool->store == &store; });
}

// Closes the memory of other processes that nothing here uses. If a process exports again, its
// memory is opened again.
void close_unused_foreign() {
    if (sim().work.pending() != 0) { // its tasks name stores
        return;
    }
    std::erase_if(sim().foreign, [](const std::unique_ptr<Store> &store) {
        if (is_imported_from(*store)) {
            return false;
        }
        syscall(SYS_munmap, store->bytes, store->size);
        close(store->fd);
        return true;
    });
}

Store *open_foreign(int descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) != 0 || file.st_size <= 0) {
        return nullptr;
    }
    const auto size = static_cast<uint64_t>(file.st_size);
    const long bytes = syscall(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, descriptor, 0);
    if (bytes == -1) {
        return nullptr;
    }
    auto store = std::make_unique<Store>();
    store->fd = descriptor;
    store->size = size;
    store->bytes = reinterpret_cast<std::byte *>(bytes);
    sim().foreign.push_back(std::move(store));
    return sim().foreign.back().get();
}

} // namespace

uint64_t new_ticket_place(const Store &store) {
    return store.size + ticket_room * ++sim().tickets;
}

bool write_ticket(const Store &store, uint64_t place, Ticket ticket) {
    ticket.magic = ticket_magic;
    return pwrite(store.fd, &ticket, sizeof ticket, static_cast<off_t>(place)) == sizeof ticket;
}

int make_share(const Store &store, uint64_t place) {
    const int made = open_again(store.fd);
    if (made >= 0 && set_lock(made, place, F_RDLCK) &&
        lseek(made, static_cast<off_t>(place), SEEK_SET) == static_cast<off_t>(place)) {
        return made;
    }
    if (made >= 0) {
        close(made);
    }
    return -1;
}

int make_view(const Store &store, uint64_t offset) {
    const int made = open_again(store.fd);
    if (made >= 0) {
        lseek(made, static_cast<off_t>(offset), SEEK_SET);
    }
    return made;
}

bool open_share(int descriptor, Ticket::Kind kind, Ticket &ret_ticket, Store *&ret_store,
                uint64_t &ret_place) {
    const off_t place = lseek(descriptor, 0, SEEK_CUR);
    Ticket ticket = {};
    if (place < 0 || pread(descriptor, &ticket, sizeof ticket, place) != sizeof ticket ||
        ticket.magic != ticket_magic || ticket.kind != kind) {
        return false;
    }
    const int memory = open_again(descriptor);
    Store *const store = memory < 0 ? nullptr : store_of(memory);
    if (!store) {
        return false;
    }
    ret_ticket = ticket;
    ret_store = store;
    ret_place = static_cast<uint64_t>(place);
    return true;
}

bool is_held(const Store &store, uint64_t place) {
    struct flock lock = lock_of(place, F_WRLCK);
    return fcntl(store.fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void hold(Store &store, uint64_t place) {
    if (++store.held[place] == 1) {
        set_lock(store.fd, place, F_RDLCK);
    }
}

void release_ticket(Store &store, uint64_t place) {
    if (--store.held[place] == 0) {
        store.held.erase(place);
        set_lock(store.fd, place, F_UNLCK);
    }
}

Store *store_of(int descriptor) {
    for (const auto &device : sim().devices) {
        if (same_file(device->store.fd, descriptor)) {
            close(descriptor);
            return &device->store;
        }
    }
    for (const auto &store : sim().foreign) {
        if (same_file(store->fd, descriptor)) {
            close(descriptor);
            return store.get();
        }
    }
    close_unused_foreign();
    Store *opened = open_foreign(descriptor);
    if (!opened) {
        close(descriptor);
    }
    return opened;
}

bool is_foreign(const Store *store) {
    for (const auto &each : sim().foreign) {
        if (each.get() == store) {
            return true;
        }
    }
    return false;
}

} // namespace simcuda
