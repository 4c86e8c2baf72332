#pragma once

#include "bench/team.h"
#include "bench/works.h"
#include "clock.h"
#include "driver.h"
#include "play.h"
#include "statistics.h"
#include "workload/program.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace emm::peers {

// Every peer is measured by this one program, compiled for each family of allocators:
//
//     PROGRAM ALLOCATOR bench CASE THREADS SIZE ROUNDS SECONDS
//     PROGRAM ALLOCATOR random COUNT LARGEST_MIB
//     PROGRAM ALLOCATOR streams STREAMS KERNELS
//     PROGRAM ALLOCATOR replay [ROUNDS] < RECORDING
//     PROGRAM ALLOCATOR meter < RECORDING    over metered_driver.cpp
//     PROGRAM ALLOCATOR fill SEED
//
// It prints one JSON object; one with `error` when the peer has failed. A family is a class
//
//     struct Family {
//         using Memory = ...; // of the shape described in tools/emm/bench/memory.h
//         Family(const std::string &allocator, Driver &driver, Purpose purpose);
//         Memory on(CUstream stream);
//     };
//
// To measure cost, a pool of a fixed size is made so large that it never has to grow. To measure
// its footprint, it is made as small as possible.
enum class Purpose { cost, footprint };

template <class Address> CUdeviceptr number(Address address) {
    if constexpr (std::is_pointer_v<Address>) {
        return reinterpret_cast<CUdeviceptr>(address);
    } else {
        return static_cast<CUdeviceptr>(address);
    }
}

template <class Family> class Peer {
public:
    using Memory = typename Family::Memory;

    Peer(std::vector<std::string> arguments, cuda::Find find)
        : arguments_(std::move(arguments)), driver_(find), free_before_(driver_.free_memory()) {}

    void run() {
        const std::string &verb = argument(1);
        if (verb == "bench") {
            bench({argument(2), static_cast<uint32_t>(integer(3)), integer(4)});
        } else if (verb == "random") {
            random_allocations_cost();
        } else if (verb == "streams") {
            multi_stream(integer(2), integer(3));
        } else if (verb == "replay") {
            replay(recording_from_input(), arguments_.size() > 2 ? integer(2) : 2);
        } else if (verb == "meter") {
            meter(recording_from_input());
        } else if (verb == "fill") {
            fill(static_cast<uint32_t>(integer(2)));
        } else {
            throw std::runtime_error(
                "expected bench, random, streams, replay, meter or fill, found '" + verb + "'");
        }
    }

private:
    const std::string &argument(size_t i) const { return arguments_.at(i); }
    size_t integer(size_t i) const { return std::stoull(argument(i)); }
    Family family(Purpose purpose) { return Family(argument(0), driver_, purpose); }

    void bench(const tool::Measurement &measurement) {
        Family allocator = family(Purpose::cost);
        const auto ring = std::make_shared<tool::RingOf<Memory>>(measurement.threads);
        const size_t room = free_before_ / 3 * 2;
        tool::Team team(measurement.threads,
                        [&](uint32_t thread, const std::atomic<bool> &stopping) {
                            driver_.enter();
                            return tool::make_work(measurement, allocator.on(driver_.make_stream()),
                                                   thread, room, ring, stopping);
                        });
        std::vector<double> ns, rates;
        for (size_t round = integer(5); round > 0; round--) {
            const tool::Rate rate = team.round(std::stod(argument(6)));
            ns.push_back(rate.ns_per_pair);
            rates.push_back(rate.mpairs_per_s);
        }
        std::printf("{\"ns_per_pair\": %.2f, \"mpairs_per_s\": %.4f}\n", tool::median(ns),
                    tool::median(rates));
    }

    Player<Memory> player(const Recording &recording, Family &allocator) {
        std::vector<CUstream> streams;
        std::vector<Memory> memories;
        for (uint32_t i = 0; i < recording.streams; i++) {
            streams.push_back(driver_.make_stream());
            memories.push_back(allocator.on(streams.back()));
        }
        return {recording, driver_, std::move(streams), std::move(memories)};
    }

    // The first run warms up, unless it is so slow that a second run would tell nothing new.
    void random_allocations_cost() {
        Family allocator = family(Purpose::cost);
        const Recording recording =
            random_allocations(static_cast<uint32_t>(integer(2)), integer(3) << 20);
        Player<Memory> plays = player(recording, allocator);
        const double first = plays.seconds();
        std::vector<double> seconds;
        for (double spent = 0; first < 1 && spent < 0.2 && seconds.size() < 15;) {
            seconds.push_back(plays.seconds());
            spent += seconds.back();
        }
        const double median = seconds.empty() ? first : tool::median(seconds);
        std::printf("{\"ns_per_event\": %.2f}\n",
                    median * 1e9 / static_cast<double>(recording.events.size()));
    }

    // RMM's benchmark of temporary allocations between kernels, with each stream warmed up.
    void multi_stream(size_t streams, size_t kernels) {
        if (!driver_.can_launch()) {
            std::printf("{\"absent\": \"the driver runs no kernels\"}\n");
            return;
        }
        Family allocator = family(Purpose::cost);
        std::vector<CUstream> all;
        std::vector<Memory> memories;
        for (size_t i = 0; i < streams; i++) {
            all.push_back(driver_.make_stream());
            memories.push_back(allocator.on(all.back()));
        }
        std::vector<double> seconds;
        for (size_t round = 0; round < 31; round++) {
            const double began = tool::seconds_now();
            for (size_t i = 0; i < kernels; i++) {
                const Memory &memory = memories[i % streams];
                const auto address = memory.allocate(sizeof(int64_t));
                driver_.launch_spin(all[i % streams], number(address));
                memory.release(address, sizeof(int64_t));
            }
            driver_.synchronize();
            seconds.push_back(tool::seconds_now() - began);
        }
        std::printf("{\"us_per_round\": %.2f}\n", tool::median(seconds) * 1e6);
    }

    static Recording recording_from_input() {
        Recording recording = read_recording(std::cin);
        if (recording.events.empty()) {
            throw std::runtime_error("the recording is empty");
        }
        return recording;
    }

    // Footprint in the first pass, cost in the second, when the allocator is warm. With more
    // rounds, the footprint again in the last one.
    void replay(const Recording &recording, size_t rounds) {
        Family allocator = family(Purpose::footprint);
        Player<Memory> plays = player(recording, allocator);
        uint64_t first_pass = 0;
        const std::vector<Footprint> footprints = plays.watched(free_before_, first_pass);
        std::vector<uint64_t> ticks = plays.timed();
        const tool::Summary second_pass = tool::summarize(ticks);
        const double ns = tool::nanoseconds_per_tick();
        for (size_t round = 3; round < rounds; round++) {
            plays.timed();
        }
        uint64_t not_told = 0;
        const Footprint peak = peak_of(footprints, 0, footprints.size());
        const size_t last_reserved =
            rounds < 3
                ? 0
                : peak_of(plays.watched(free_before_, not_told), 0, footprints.size()).reserved;
        std::printf("{\"peak_live_bytes\": %zu, \"peak_reserved_bytes\": %zu, "
                    "\"peak_reserved_bytes_all_rounds\": %zu, "
                    "\"ns_per_event\": %.2f, \"p999_ns\": %.2f, \"first_pass_ms\": %.4f, "
                    "\"course\": [",
                    peak.live, peak.reserved, std::max(peak.reserved, last_reserved),
                    second_pass.mean * ns, second_pass.p999 * ns,
                    static_cast<double>(first_pass) * ns / 1e6);
        print_course(footprints);
        std::printf("]}\n");
    }

    // The driver's calls in two passes. Nothing else is measured here, because counting takes time.
    void meter(const Recording &recording) {
        if (!driver_.is_metered()) {
            std::printf("{\"absent\": \"-\", \"detail\": \"its driver cannot be metered\"}\n");
            return;
        }
        Family allocator = family(Purpose::footprint);
        Player<Memory> plays = player(recording, allocator);
        const DriverHalves halves = plays.metered(), again = plays.metered();
        std::printf("{\"driver_ms\": %.4f, \"driver_calls_first_half\": %" PRIu64
                    ", \"driver_calls_second_half\": %" PRIu64
                    ", \"driver_calls_second_pass\": %" PRIu64 "}\n",
                    static_cast<double>(halves.first.ns + halves.second.ns) / 1e6,
                    halves.first.calls, halves.second.calls,
                    again.first.calls + again.second.calls);
    }

    struct Filling {
        typename Memory::Address address;
        size_t size;
    };

    // Blocks of random sizes until none of 1 MiB is left.
    static void fill_up(const Memory &memory, tool::Random &random, std::vector<Filling> &blocks) {
        for (size_t largest = size_t(256) << 20; largest >= size_t(1) << 20;) {
            const size_t size = random.between(1, largest);
            try {
                blocks.push_back({memory.allocate(size), size});
            } catch (const std::exception &) {
                largest /= 2;
            }
        }
    }

    static size_t live_bytes(const std::vector<Filling> &blocks) {
        size_t live = 0;
        for (const Filling &block : blocks) {
            live += block.size;
        }
        return live;
    }

    // The most bytes that can be live on this device: on a fresh one, and after a random half was
    // freed.
    void fill(uint32_t seed) {
        Family allocator = family(Purpose::footprint);
        const CUstream stream = driver_.make_stream();
        const Memory memory = allocator.on(stream);
        tool::Random random(seed);
        std::vector<Filling> blocks, kept;
        fill_up(memory, random, blocks);
        const size_t first = live_bytes(blocks);
        for (const Filling &block : blocks) {
            if (random.percent(50)) {
                memory.release(block.address, block.size);
            } else {
                kept.push_back(block);
            }
        }
        driver_.synchronize();
        fill_up(memory, random, kept);
        std::printf("{\"free_bytes\": %zu, \"live_bytes_fresh\": %zu, \"live_bytes\": %zu}\n",
                    free_before_, first, live_bytes(kept));
    }

    static Footprint peak_of(const std::vector<Footprint> &footprints, size_t from, size_t to) {
        Footprint peak;
        for (size_t i = from; i < to; i++) {
            peak.live = std::max(peak.live, footprints[i].live);
            peak.reserved = std::max(peak.reserved, footprints[i].reserved);
        }
        return peak;
    }

    // At most 400 points, each the peak of its stretch: as many as a plot can show.
    static void print_course(const std::vector<Footprint> &footprints) {
        const size_t points = std::min<size_t>(400, footprints.size());
        for (size_t point = 0; point < points; point++) {
            const Footprint peak = peak_of(footprints, footprints.size() * point / points,
                                           footprints.size() * (point + 1) / points);
            std::printf("%s[%zu, %zu]", point == 0 ? "" : ", ", peak.live, peak.reserved);
        }
    }

    const std::vector<std::string> arguments_;
    Driver driver_;
    const size_t free_before_;
};

// The whole of a family's main function. `find` finds the driver's entries, or throws.
template <class Family> int run_peer(int count, char **arguments, cuda::Find find) {
    try {
        Peer<Family>({arguments + 1, arguments + count}, find).run();
        return 0;
    } catch (const std::exception &failure) {
        std::string text;
        for (const char *c = failure.what(); *c && *c != '\n'; c++) {
            text += *c == '"' || *c == '\\' ? '\'' : *c;
        }
        std::printf("{\"error\": \"%s\"}\n", text.c_str());
        return 1;
    }
}

} // namespace emm::peers
