#pragma once

#include "block.h"

#include <deque>
#include <mutex>
#include <optional>

// Blocks that one thread leaves for whichever takes them next. The event is recorded behind the
// block's uses so far; the taker owns both.
class Mailbox {
public:
    struct Parcel {
        Block block;
        CUevent event;
    };

    void put(const Parcel &parcel) {
        std::lock_guard lock(mutex_);
        parcels_.push_back(parcel);
    }
    std::optional<Parcel> take() {
        std::lock_guard lock(mutex_);
        if (parcels_.empty()) {
            return std::nullopt;
        }
        const Parcel parcel = parcels_.front();
        parcels_.pop_front();
        return parcel;
    }

private:
    std::mutex mutex_;
    std::deque<Parcel> parcels_;
};
