#include "../parts/threads.h"
#include "cases.h"
#include "objects.h"

#include <deque>
#include <mutex>

namespace {

constexpr int threads = 8, rounds = 200;

struct Gift {
    CUdeviceptr address;
    size_t size;
    unsigned value;
};

// Blocks for a thread to look at and free; their work has ended.
class Inbox {
public:
    void put(const Gift &gift) {
        const std::lock_guard lock(mutex_);
        gifts_.push_back(gift);
    }
    bool take(Gift &ret_gift) {
        const std::lock_guard lock(mutex_);
        if (gifts_.empty()) {
            return false;
        }
        ret_gift = gifts_.front();
        gifts_.pop_front();
        return true;
    }

private:
    std::mutex mutex_;
    std::deque<Gift> gifts_;
};

struct Count {
    int blocks = 0, right = 0, freed = 0;
};

class Worker {
public:
    Worker(int number, CUcontext context, Inbox *inboxes, Count *count)
        : number_(number), context_(context), inboxes_(inboxes), count_(*count) {}

    void run() {
        NEED(cu.cuCtxSetCurrent(context_));
        const Stream stream;
        for (int round = 0; round < rounds; ++round) {
            one_round(round, stream);
        }
        NEED(cu.cuStreamSynchronize(stream));
    }

    void empty_inbox(CUstream stream) {
        for (Gift gift; inboxes_[number_].take(gift);) {
            look_and_free(gift, stream);
        }
    }

private:
    void one_round(int round, CUstream stream) {
        const size_t size = size_t(256) << (round * 7 + number_) % 13;
        const auto value = static_cast<unsigned>(number_ * rounds + round + 1);
        const Gift gift = {round % 2 ? allocate(size) : allocate_async(size, stream), size, value};
        ++count_.blocks;
        NEED(fill(gift.address, size, value, stream));
        if (round % 3 == 0) {
            NEED(cu.cuStreamSynchronize(stream));
            inboxes_[(number_ + 1) % threads].put(gift);
        } else {
            look_and_free(gift, stream);
        }
        empty_inbox(stream);
    }

    void look_and_free(const Gift &gift, CUstream stream) {
        count_.right += holds(gift.address, gift.size, gift.value, stream);
        count_.freed += (gift.value % 2 ? cu.cuMemFree(gift.address)
                                        : cu.cuMemFreeAsync(gift.address, stream)) == CUDA_SUCCESS;
    }

    int number_;
    CUcontext context_;
    Inbox *inboxes_;
    Count &count_;
};

} // namespace

void threads_case() {
    const Primary primary;
    Inbox inboxes[threads];
    Count counts[threads], all;
    in_threads(threads, [&](size_t number) {
        Worker(int(number), primary.context, inboxes, &counts[number]).run();
    });
    const Stream stream;
    for (int number = 0; number < threads; ++number) {
        Worker(number, primary.context, inboxes, &counts[number]).empty_inbox(stream);
        all.blocks += counts[number].blocks;
        all.right += counts[number].right;
        all.freed += counts[number].freed;
    }
    NEED(cu.cuStreamSynchronize(stream));
    fact(all.blocks == threads * rounds, "%d threads took %d blocks", threads, all.blocks);
    fact(all.right == all.blocks, "all bytes ok");
    fact(all.freed == all.blocks, "each was freed, some by the next thread");
}
