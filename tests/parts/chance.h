// Choices of threads with random steps.
#pragma once

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

class Chance {
public:
    explicit Chance(size_t seed) : random_(seed) {}

    size_t below(size_t limit) { return random_() % limit; }
    bool one_in(size_t limit) { return below(limit) == 0; }

    // As many of 16 bytes as of 16 MiB: each power of two is equally likely.
    size_t size() {
        const size_t power = size_t(16) << below(20);
        return power + below(power);
    }

private:
    std::mt19937_64 random_;
};

// The last item takes the place of the removed one.
template <class Item> Item taken_from(std::vector<Item> &items, size_t number) {
    const Item item = std::exchange(items[number], items.back());
    items.pop_back();
    return item;
}
