// Where and when the driver itself has given memory to the program. A freed address within such
// memory no longer counts as freed. The table has one entry for a region of 2 MiB. Two regions that
// are 64 GiB apart or more may share an entry. So the table may also report an address that the
// driver has not given. Any thread may call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace emm::run {

class DriverRegions {
public:
    static constexpr unsigned region_bits = 21;
    static constexpr size_t region_count = 32768;

    // The time advances whenever the driver gives memory.
    uint64_t now() const { return now_.load(std::memory_order_acquire); }

    // [address, address + size) is the program's from now on.
    void add(uint64_t address, uint64_t size) noexcept;

    // Whether memory around the address was given later than at `moment`.
    bool is_given_since(uint64_t moment, uint64_t address) const {
        return latest_[place_of(region_of(address))].load(std::memory_order_acquire) > moment;
    }

private:
    static uint64_t region_of(uint64_t address) { return address >> region_bits; }
    // Neighbouring regions have places of their own. The driver prefers addresses that are
    // multiples of large powers of two, so the higher bits select the place, too.
    static size_t place_of(uint64_t region) {
        return (region + region / region_count * 0x9e37) % region_count;
    }

    std::atomic<uint64_t> now_{0};
    std::atomic<uint64_t> latest_[region_count] = {};
};

} // namespace emm::run
