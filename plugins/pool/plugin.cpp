// The pool's entry: a table made from the manager's member functions.
#include "manager.h"

namespace {

using emm::pool::Manager;

// Made at the first use. If the C library fails to load this file for want of memory, and succeeds
// later, it runs no constructors.
const emm_plugin &guarded() {
    static const emm_plugin made = emm::make_plugin<Manager>(
        "pool", EMM_VERSION, "Caches device memory and hands it out again in stream order",
        EMM_PLUGIN_STREAM_ORDERED | EMM_PLUGIN_CACHES | EMM_PLUGIN_CAPTURE |
            EMM_PLUGIN_PAUSE_KEEPS | EMM_PLUGIN_PAUSE_SHARES,
        emm::pool::option_list);
    return made;
}

// Not inlined, because making the table needs a frame.
[[gnu::noinline]] emm_status allocate_guarded(emm_manager *self, size_t size, emm_stream stream,
                                              emm_deviceptr *ret_ptr) {
    return guarded().memalloc(self, size, stream, ret_ptr);
}

[[gnu::noinline]] emm_status free_guarded(emm_manager *self, emm_deviceptr ptr, size_t size,
                                          emm_stream stream) {
    return guarded().memfree(self, ptr, size, stream);
}

const Manager &manager_of(emm_manager *self) {
    return reinterpret_cast<emm::adaptor::Held<Manager> *>(self)->manager;
}

// Nearly every call ends here: it cannot throw, and needs no frame for code that might. All other
// calls jump to the guarded slots. The path of a hit, in cache/ but for the first:
//
//     Manager::take_from_magazine
//     > Thread::magazine_for             the thread's magazine for this manager and stream, if any
//     > BiasedLock::enter                two plain stores and a load for the owner of the magazine
//     > Magazine::take_newest            what was freed last, if its size fits; no search
//       > take_slot, take_newest_block   up to 32 KiB of a slab; above that, a block
//     > BiasedLock::leave
emm_status memalloc(emm_manager *self, size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    const uint64_t address = manager_of(self).take_from_magazine(size, stream);
    if (address == 0) [[unlikely]] {
        return allocate_guarded(self, size, stream, ret_ptr);
    }
    *ret_ptr = address;
    return EMM_OK;
}

emm_status memfree(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    return manager_of(self).give_to_magazine(ptr, size, stream)
               ? EMM_OK
               : free_guarded(self, ptr, size, stream);
}

} // namespace

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = [] {
        emm_plugin quick = guarded();
        quick.memalloc = memalloc;
        quick.memfree = memfree;
        return quick;
    }();
    return &table;
}
