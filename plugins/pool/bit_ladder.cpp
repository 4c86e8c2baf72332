#include "bit_ladder.h"

namespace emm::pool {
namespace {

constexpr uint64_t word_bits = 64;

uint64_t bit(uint64_t index) {
    return uint64_t(1) << (index % word_bits);
}

uint64_t highest(uint64_t word) {
    return word_bits - 1 - uint64_t(__builtin_clzll(word));
}

} // namespace

BitLadder::BitLadder(uint64_t count) {
    do {
        count = (count + word_bits - 1) / word_bits;
        levels_.emplace_back(count);
    } while (count > 1);
}

void BitLadder::set(uint64_t index) {
    for (auto &level : levels_) {
        level[index / word_bits] |= bit(index);
        index /= word_bits;
    }
}

void BitLadder::clear(uint64_t index) {
    for (auto &level : levels_) {
        level[index / word_bits] &= ~bit(index);
        if (level[index / word_bits] != 0) {
            return;
        }
        index /= word_bits;
    }
}

uint64_t BitLadder::last_at_or_before(uint64_t index) const {
    uint64_t below = bit(index) | (bit(index) - 1);
    for (size_t level = 0; level < levels_.size(); level++) {
        const uint64_t word = levels_[level][index / word_bits] & below;
        if (word == 0) {
            index /= word_bits;
            below = bit(index) - 1;
            continue;
        }
        index = index / word_bits * word_bits + highest(word);
        while (level-- > 0) {
            index = index * word_bits + highest(levels_[level][index]);
        }
        return index;
    }
    return none;
}

} // namespace emm::pool
