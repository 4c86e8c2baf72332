#include "replay/player.h"

#include "clock.h"

#include <fmt/format.h>

namespace emm::tool {

Player::Player(Session &session, bool touch, size_t expected_events)
    : session_(session), toucher_(touch ? std::make_unique<Toucher>() : nullptr) {
    ticks_.reserve(expected_events);
    EMM_REQUIRE_CUDA(cuEventCreate, &event_, CU_EVENT_DISABLE_TIMING);
}

Player::~Player() {
    driver_calls().cuEventDestroy(event_);
}

void Player::play(const Event &event, size_t number) {
    number_ = number;
    switch (event.op) {
    case Op::alloc:
        allocate(event);
        break;
    case Op::free:
        release(event);
        break;
    case Op::mark:
        break;
    case Op::defer_begin: {
        const uint64_t began = observe::event_ticks_unordered();
        took(began, emm_defer_cleanup_begin(session_.context()), event);
        break;
    }
    case Op::defer_end: {
        const uint64_t began = observe::event_ticks_unordered();
        took(began, emm_defer_cleanup_end(session_.context()), event);
        break;
    }
    }
}

void Player::allocate(const Event &event) {
    Block &block = session_.block(event.block);
    const CUstream stream = session_.stream(event.stream);
    emm_deviceptr address = Block::failed;
    const uint64_t began = observe::event_ticks_unordered();
    const emm_status status =
        emm_memalloc(session_.context(), event.size, session_.order(event.stream), &address);
    took(began, status, event);
    if (status >= 0 && toucher_) {
        toucher_->write(block, address, stream);
    }
    block.publish(status >= 0 ? address : Block::failed);
}

void Player::release(const Event &event) {
    Block &block = session_.block(event.block);
    const emm_deviceptr address = block.wait();
    if (address == Block::failed) {
        return;
    }
    const CUstream stream = session_.stream(event.stream);
    if (event.stream != block.stream) {
        order(block.stream, event.stream);
    }
    if (toucher_) {
        toucher_->check(block, address, stream);
    }
    block.forget();
    const uint64_t began = observe::event_ticks_unordered();
    took(began, emm_memfree(session_.context(), address, event.size, session_.order(event.stream)),
         event);
}

void Player::release_left(Block &block) {
    const emm_deviceptr address = block.address();
    if (address == Block::failed || address == Block::pending) {
        return;
    }
    const CUstream stream = session_.stream(block.stream);
    if (toucher_) {
        toucher_->check(block, address, stream);
    }
    if (emm_memfree(session_.context(), address, block.size, session_.order(block.stream)) < 0) {
        failed_++;
    }
}

void Player::finish() {
    if (toucher_) {
        toucher_->finish();
    }
}

// Orders later work of stream `second` behind the present work of `first`.
void Player::order(uint16_t first, uint16_t second) {
    EMM_REQUIRE_CUDA(cuEventRecord, event_, session_.stream(first));
    EMM_REQUIRE_CUDA(cuStreamWaitEvent, session_.stream(second), event_, 0);
}

void Player::took(uint64_t began, emm_status status, const Event &event) {
    ticks_.push_back(observe::event_ticks_unordered() - began);
    if (status >= 0) {
        return;
    }
    if (failed_++ == 0) {
        first_failure_number_ = number_;
        first_failure_ = fmt::format("event {}, {} of {} bytes: {}", number_ + 1, name_of(event.op),
                                     event.size, emm_last_error()->text);
    }
}

} // namespace emm::tool
