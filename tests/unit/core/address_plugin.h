// A plugin that is linked into the test and gives out addresses without memory: each live address
// once, the last freed first. It refuses unknown addresses and wrong sizes.
#pragma once

#include <emm/emm.h>

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

class AddressPlugin {
public:
    static const emm_plugin *entry(const emm_host *) {
        static const emm_plugin table = [] {
            emm_plugin made = {};
            made.struct_size = sizeof made;
            made.interface_version = EMM_PLUGIN_ABI_MAJOR;
            made.name = "addresses";
            made.create = [](const emm_host *, const emm_context_info *, const char *const *,
                             emm_manager **ret_manager) -> emm_status {
                *ret_manager = reinterpret_cast<emm_manager *>(new AddressPlugin);
                return EMM_OK;
            };
            made.destroy = [](emm_manager *self) -> emm_status {
                delete reinterpret_cast<AddressPlugin *>(self);
                return EMM_OK;
            };
            made.initialize = [](emm_manager *) -> emm_status { return EMM_OK; };
            made.memalloc = [](emm_manager *self, size_t size, emm_stream, emm_deviceptr *ret_ptr) {
                return reinterpret_cast<AddressPlugin *>(self)->allocate(size, ret_ptr);
            };
            made.memfree = [](emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream) {
                return reinterpret_cast<AddressPlugin *>(self)->free(ptr, size);
            };
            return made;
        }();
        return &table;
    }

private:
    static constexpr size_t most = size_t(1) << 40;

    emm_status allocate(size_t size, emm_deviceptr *ret_ptr) {
        const std::lock_guard lock(mutex_);
        if (size > most) {
            return EMM_E_OUT_OF_MEMORY;
        }
        emm_deviceptr ptr = 0;
        if (freed_.empty()) {
            static std::atomic<emm_deviceptr> next{0x7f0000000000};
            ptr = next += 512;
        } else {
            ptr = freed_.back();
            freed_.pop_back();
        }
        live_[ptr] = size;
        *ret_ptr = ptr;
        return EMM_OK;
    }
    emm_status free(emm_deviceptr ptr, size_t size) {
        const std::lock_guard lock(mutex_);
        const auto found = live_.find(ptr);
        if (found == live_.end()) {
            return EMM_E_NOT_OWNED;
        }
        if (size != 0 && size != found->second) {
            return EMM_E_INVALID_VALUE;
        }
        live_.erase(found);
        freed_.push_back(ptr);
        return EMM_OK;
    }

    std::mutex mutex_;
    std::map<emm_deviceptr, size_t> live_;
    std::vector<emm_deviceptr> freed_;
};
