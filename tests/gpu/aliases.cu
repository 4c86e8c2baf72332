// Asks a GPU what a second mapping of one physical handle may be used for, without emm:
//
//     nvcc -O2 -std=c++17 -arch=sm_90 tests/gpu/aliases.cu -o aliases -lcuda
//     ./aliases [QUESTION...]      without a name, all of them
//
// Each question runs in a process of its own. Its lines begin with
//
//     promised   CUDA promises it; wrong words make the exit status 1
//     excluded   CUDA excludes it, or is silent; only reported
//     measured   times and sizes
//     skipped    with the reason
//     failed     the question could not be asked; the exit status is 2, unless it is 1
//
// CUDA's programming guide, "Virtual Aliasing Support": operations that are ordered after the end
// of a writing operation see the write through every address. Grids that were on the GPU before
// that end are excluded.
#include "aliases.cuh"

#include <atomic>
#include <cstdlib>
#include <future>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

#define RUN(kernel, grid, stream, ...)                                                             \
    (kernel<<<grid, threads, 0, stream>>>(__VA_ARGS__), DO(cudaGetLastError()))

// ---- What the calls cost, and whether they wait

void ask_cost() {
    const cudaStream_t stream = new_stream();
    Count *wrong = zeroed<Count>();
    for (const size_t mib : {2, 64, 1024}) {
        const Piece piece(mib * MiB);
        const Place first(piece);
        const size_t n = piece.size / 4;
        std::vector<Place> others;
        for (int i = 0; i < 64; i++) {
            others.emplace_back(piece.size);
        }
        for (const bool busy : {false, true}) {
            const size_t count = busy ? 16 : 64;
            std::vector<double> map, permit, unmap;
            for (size_t i = 0; i < count; i++) {
                const unsigned base = unsigned(i) * 1000;
                RUN(fill, blocks, stream, first.words(), n, base, busy ? 20000000 : 0);
                map.push_back(timed([&] { others[i].map(piece); }));
                permit.push_back(timed([&] { others[i].permit(); }));
                RUN(verify, blocks, stream, others[i].words(), n, base, 1, wrong);
                RUN(fill, blocks, stream, others[i].words(), n, base + 7, 0);
                RUN(verify, blocks, stream, first.words(), n, base + 7, 1, wrong);
            }
            DO(cudaStreamSynchronize(stream));
            for (size_t i = 0; i < count; i++) {
                if (busy && i == 0) {
                    RUN(fill, blocks, stream, first.words(), n, 5, 100000000);
                }
                unmap.push_back(timed([&] { others[i].unmap(); }));
            }
            const std::string what = std::to_string(mib) + " MiB, " +
                                     (busy ? "beside a kernel on the first address" : "idle");
            say("measured", "%s: second map %s; set access %s; unmap of it %s", what.c_str(),
                figures(map).c_str(), figures(permit).c_str(), figures(unmap).c_str());
            promise("one handle at two addresses, " + what, take(wrong));
        }
    }
}

void ask_part() {
    const Piece piece(64 * MiB);
    const Place place(piece.size);
    const char *shorter, *inside;
    cuGetErrorName(cuMemMap(place.at, 2 * MiB, 0, piece.handle, 0), &shorter);
    cuGetErrorName(cuMemMap(place.at + 2 * MiB, 2 * MiB, 2 * MiB, piece.handle, 0), &inside);
    say("measured", "a mapping of 2 of 64 MiB: %s; one that begins inside: %s", shorter, inside);
}

void ask_many() {
    const Piece piece(2 * MiB);
    constexpr size_t count = 20000, part = 1000;
    size_t before, after, total;
    std::vector<double> times, unmap;
    std::vector<Place> places;
    DO(cuMemGetInfo(&before, &total));
    for (size_t i = 0; i < count; i++) {
        places.emplace_back(piece.size);
        times.push_back(timed([&] {
            places.back().map(piece);
            places.back().permit();
        }));
    }
    DO(cuMemGetInfo(&after, &total));
    for (Place &place : places) {
        unmap.push_back(timed([&] { place.unmap(); }));
    }
    say("measured",
        "%zu places of one handle: the first %zu %s; the last %zu %s; they take %zu KiB", count,
        part, figures({times.begin(), times.begin() + part}).c_str(), part,
        figures({times.end() - part, times.end()}).c_str(), (before - after) >> 10);
    say("measured", "their end: the first %zu %s; the last %zu %s", part,
        figures({unmap.begin(), unmap.begin() + part}).c_str(), part,
        figures({unmap.end() - part, unmap.end()}).c_str());
}

// ---- Every way to write through one address, every way to read through the other, in every order

struct Desk {
    Desk() {
        for (unsigned k = 0; k < values; k++) {
            RUN(fill, blocks, nullptr, source + k * window, window, base_of(k), 0);
        }
        DO(cudaMallocHost(&host_source, bytes * values));
        DO(cudaMallocHost(&host_scratch, bytes));
        DO(cudaMemcpy(host_source, source, bytes * values, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 2; i++) {
            cudaResourceDesc resource = {};
            resource.resType = cudaResourceTypeLinear;
            resource.res.linear.devPtr = place[i].words();
            resource.res.linear.desc = cudaCreateChannelDesc<unsigned>();
            resource.res.linear.sizeInBytes = bytes;
            cudaTextureDesc how = {};
            how.readMode = cudaReadModeElementType;
            DO(cudaCreateTextureObject(&texture[i], &resource, &how, nullptr));
        }
    }
    static unsigned base_of(unsigned k) { return (k + 1) * 1000003; }
    void verify_scratch(cudaStream_t stream, unsigned k, unsigned step) {
        RUN(verify, blocks, stream, scratch, window, base_of(k), step, wrong);
    }
    static constexpr size_t bytes = window * 4;
    static constexpr unsigned values = 16;
    Piece piece{2 * MiB};
    Place place[2] = {Place(piece), Place(piece)};
    cudaTextureObject_t texture[2] = {};
    unsigned *source = zeroed<unsigned>(window * values), *scratch = zeroed<unsigned>(window);
    unsigned *host_source = nullptr, *host_scratch = nullptr;
    Count *wrong = zeroed<Count>();
};

struct Writer {
    const char *name;
    unsigned step; // between words
    void (*write)(Desk &, cudaStream_t, int place, unsigned k);
};

const Writer writers[] = {
    {"kernel", 1,
     [](Desk &d, cudaStream_t s, int i, unsigned k) {
         RUN(fill, blocks, s, d.place[i].words(), window, d.base_of(k), 0);
     }},
    {"bulk store", 1,
     [](Desk &d, cudaStream_t s, int i, unsigned k) {
         RUN(fill_bulk, window / tile_words, s, d.place[i].words(), d.base_of(k));
     }},
    {"memset", 0,
     [](Desk &d, cudaStream_t s, int i, unsigned k) {
         DO(cuMemsetD32Async(d.place[i].at, d.base_of(k), window, s));
     }},
    {"HtoD", 1,
     [](Desk &d, cudaStream_t s, int i, unsigned k) {
         DO(cuMemcpyHtoDAsync(d.place[i].at, d.host_source + k * window, d.bytes, s));
     }},
    {"DtoD", 1,
     [](Desk &d, cudaStream_t s, int i, unsigned k) {
         DO(cuMemcpyDtoDAsync(d.place[i].at, CUdeviceptr(d.source + k * window), d.bytes, s));
     }},
};

struct Reader {
    const char *name;
    void (*read)(Desk &, cudaStream_t, int place, unsigned k, unsigned step);
};

const Reader readers[] = {
    {"kernel",
     [](Desk &d, cudaStream_t s, int i, unsigned k, unsigned step) {
         RUN(verify, blocks, s, d.place[i].words(), window, d.base_of(k), step, d.wrong);
     }},
    {"ld.nc",
     [](Desk &d, cudaStream_t s, int i, unsigned k, unsigned step) {
         RUN(verify_read_only, blocks, s, d.place[i].words(), d.base_of(k), step, d.wrong);
     }},
    {"texture",
     [](Desk &d, cudaStream_t s, int i, unsigned k, unsigned step) {
         RUN(verify_texture, blocks, s, d.texture[i], d.base_of(k), step, d.wrong);
     }},
    {"bulk load",
     [](Desk &d, cudaStream_t s, int i, unsigned k, unsigned step) {
         RUN(verify_bulk, blocks, s, d.place[i].words(), d.base_of(k), step, d.wrong);
     }},
    {"DtoH",
     [](Desk &d, cudaStream_t s, int i, unsigned k, unsigned step) {
         DO(cuMemcpyDtoHAsync(d.host_scratch, d.place[i].at, d.bytes, s));
         DO(cuMemcpyHtoDAsync(CUdeviceptr(d.scratch), d.host_scratch, d.bytes, s));
         d.verify_scratch(s, k, step);
     }},
    {"DtoD",
     [](Desk &d, cudaStream_t s, int i, unsigned k, unsigned step) {
         DO(cuMemcpyDtoDAsync(CUdeviceptr(d.scratch), d.place[i].at, d.bytes, s));
         d.verify_scratch(s, k, step);
     }},
};

enum class Order { one_stream, legacy_stream, events, graph, memory };

struct Lanes {
    explicit Lanes(Order o) : order(o) {
        a = order == Order::legacy_stream ? cudaStreamLegacy : new_stream();
        b = order == Order::one_stream      ? a
            : order == Order::legacy_stream ? new_stream(cudaStreamDefault)
                                            : new_stream();
    }
    void hop(cudaStream_t from, cudaStream_t to) {
        if (order == Order::events || order == Order::graph) {
            DO(cudaEventRecord(event, from));
            DO(cudaStreamWaitEvent(to, event));
        } else if (order == Order::memory) {
            DO(cuStreamWriteValue32(from, CUdeviceptr(flag), ++raised, 0));
            DO(cuStreamWaitValue32(to, CUdeviceptr(flag), raised, CU_STREAM_WAIT_VALUE_GEQ));
        }
    }
    Order order;
    cudaStream_t a, b;
    cudaEvent_t event = new_event();
    unsigned *flag = zeroed<unsigned>(), raised = 0;
};

// Each round writes and reads both ways. No value comes back soon, so stale words are wrong words.
void rounds(Desk &desk, Lanes &lanes, const Writer &writer, const Reader &reader) {
    for (unsigned k = 0; k < Desk::values; k += 2) {
        writer.write(desk, lanes.a, 0, k);
        lanes.hop(lanes.a, lanes.b);
        reader.read(desk, lanes.b, 1, k, writer.step);
        writer.write(desk, lanes.b, 1, k + 1);
        lanes.hop(lanes.b, lanes.a);
        reader.read(desk, lanes.a, 0, k + 1, writer.step);
    }
}

Count wrong_words(Desk &desk, Lanes &lanes, const Writer &writer, const Reader &reader) {
    cudaGraphExec_t exec = nullptr;
    if (lanes.order == Order::graph) {
        cudaGraph_t graph;
        DO(cudaStreamBeginCapture(lanes.a, cudaStreamCaptureModeRelaxed));
        rounds(desk, lanes, writer, reader);
        DO(cudaStreamEndCapture(lanes.a, &graph));
        DO(cudaGraphInstantiate(&exec, graph, 0));
    }
    for (int i = 0; i < 10; i++) {
        exec ? DO(cudaGraphLaunch(exec, lanes.a)) : rounds(desk, lanes, writer, reader);
    }
    const Count wrong = take(desk.wrong);
    reader.read(desk, lanes.a, 0, 0, writer.step); // not what is there
    if (take(desk.wrong) == 0) {
        throw Error{"the reader sees no wrong words"};
    }
    return wrong;
}

void ask_order(Order order, bool promised, const char *name) {
    Desk desk;
    Lanes lanes(order);
    for (const Writer &writer : writers) {
        Count sum = 0;
        std::string line = std::string(name) + ", written by " + writer.name + ", read by";
        for (const Reader &reader : readers) {
            line += std::string(" ") + reader.name + " ";
            try {
                const Count wrong = wrong_words(desk, lanes, writer, reader);
                sum += wrong;
                line += std::to_string(wrong);
            } catch (const Error &error) {
                line += "(" + error.text + ")";
                status = status ? status : 2;
                lanes = Lanes(order); // a capture may have been left open
                cudaGetLastError();
            }
        }
        say(promised ? "promised" : "excluded", "%s wrong words", line.c_str());
        status = promised && sum ? 1 : status;
    }
}

// ---- Readers that are on the GPU before the writer's end

const char *const ways[] = {"one address", "two addresses", "two and fence.proxy.alias"};

void ask_programmatic() {
    const Piece piece(2 * MiB);
    const Place one(piece), two(piece);
    const cudaStream_t stream = new_stream();
    Count *ended = zeroed<Count>(), *overlaps = zeroed<Count>(), *wrong = zeroed<Count>();
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (int bits = 0; bits < 8; bits++) {
        const bool trigger = !(bits & 4), wait = !(bits & 2), touched = bits & 1;
        std::string line;
        for (int way = 0; way < 3; way++) {
            const Care care = {wait, touched, way == 2};
            const unsigned *from = way == 0 ? one.words() : two.words();
            for (unsigned i = 0; i < 100; i++) {
                const unsigned base = (i + 100 * unsigned(way)) * 1000003;
                RUN(early_writer, blocks, stream, one.words(), base, trigger, ended);
                DO(cudaLaunchKernelEx(&config, early_reader, from, base, care, ended, overlaps,
                                      wrong));
            }
            line += std::string(", by ") + ways[way] + " " + std::to_string(take(wrong));
        }
        say("excluded",
            "programmatic launch, the writer triggers %s, the reader %s%s%s wrong words; it was "
            "there before the writer's end in %llu of 300 rounds",
            trigger ? "early" : "at its end", touched ? "reads, then " : "",
            wait ? "waits and reads" : "reads without waiting", line.c_str(), take(overlaps));
    }
}

void ask_resident() {
    const Piece piece(2 * MiB);
    const Place one(piece), two(piece);
    const cudaStream_t writer = new_stream(), reader = new_stream();
    Count *wrong = zeroed<Count>();
    for (const bool touched : {false, true}) {
        std::string line;
        for (int way = 0; way < 3; way++) {
            const unsigned count = 200;
            const unsigned *from = way == 0 ? one.words() : two.words();
            Flags *flags = zeroed<Flags>(), ended;
            RUN(resident, blocks, reader, from, count, Care{false, touched, way == 2}, flags,
                wrong);
            for (unsigned round = 1; round <= count; round++) {
                await_ready<<<1, 1, 0, writer>>>(flags, blocks * round);
                RUN(fill, blocks, writer, one.words(), window, round * 1000003, 0);
                raise_flag<<<1, 1, 0, writer>>>(flags, round);
            }
            line += std::string(", by ") + ways[way] + " " + std::to_string(take(wrong));
            DO(cudaMemcpy(&ended, flags, sizeof ended, cudaMemcpyDeviceToHost));
            if (ended.late) {
                throw Error{"a flag did not arrive in a second"};
            }
        }
        say("excluded", "a resident kernel that acquires a flag%s%s wrong words",
            touched ? ", having read the words before" : "", line.c_str());
    }
}

// ---- An address for one piece, then for another

void ask_reuse() {
    const Piece pieces[] = {Piece(2 * MiB), Piece(2 * MiB)};
    const Place own[] = {Place(pieces[0]), Place(pieces[1])};
    Place place(2 * MiB);
    const cudaStream_t stream = new_stream(), beside = new_stream();
    const cudaEvent_t event = new_event();
    Count *wrong = zeroed<Count>();
    for (const bool busy : {false, true}) {
        for (unsigned i = 0; i < 400; i++) {
            const unsigned base = i * 1000003;
            if (busy) {
                RUN(occupy, blocks, beside, 500000);
            }
            RUN(fill, blocks, stream, own[i % 2].words(), window, base, 0);
            place.map(pieces[i % 2]);
            place.permit();
            RUN(verify, blocks, stream, place.words(), window, base, 1, wrong);
            RUN(fill, blocks, stream, place.words(), window, base + 7, 0);
            RUN(verify, blocks, stream, own[i % 2].words(), window, base + 7, 1, wrong);
            DO(cudaEventRecord(event, stream));
            DO(cudaEventSynchronize(event));
            place.unmap();
        }
        promise(std::string("an address is mapped to another piece after the work's event") +
                    (busy ? ", beside a kernel of another stream" : ""),
                take(wrong));
    }
}

// ---- What another thread feels

void tell_beside(const char *what, const std::function<void()> &work) {
    std::atomic<bool> over{false};
    std::vector<double> launch, whole;
    auto other = std::async(std::launch::async, [&] {
        DO(cudaSetDevice(0));
        const cudaStream_t stream = new_stream();
        do {
            const double launched = timed([&] { RUN(occupy, 1, stream, 0); });
            const double ended = timed([&] { DO(cudaStreamSynchronize(stream)); });
            launch.push_back(launched);
            whole.push_back(launched + ended);
        } while (!over);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double time = timed([&] {
        try {
            work();
        } catch (...) {
            over = true;
            throw;
        }
    });
    over = true;
    other.get();
    say("measured",
        "another thread launches an empty kernel, %s (%.0f ms): %zu launches %s; to its "
        "end %s",
        what, time / 1000, launch.size(), figures(launch).c_str(), figures(whole).c_str());
}

void ask_latency() {
    for (const size_t mib : {2, 64}) {
        const Piece piece(mib * MiB);
        const Place first(piece);
        std::vector<Place> places;
        for (int i = 0; i < 1000; i++) {
            places.emplace_back(piece.size);
        }
        const std::string size = std::to_string(mib) + " MiB";
        tell_beside("alone", [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
        tell_beside(("beside 1,000 second mappings of " + size).c_str(), [&] {
            for (Place &place : places) {
                place.map(piece);
                place.permit();
            }
        });
        tell_beside(("beside their end, " + size).c_str(), [&] {
            for (Place &place : places) {
                place.unmap();
            }
        });
    }
}

void ask_peer() {
    int devices = 0, reaches = 0;
    DO(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        return say("skipped", "peer: there is one device");
    }
    DO(cudaDeviceCanAccessPeer(&reaches, 1, 0));
    if (!reaches) {
        return say("skipped", "peer: the second device does not reach the first");
    }
    const Piece piece(2 * MiB);
    const Place one(piece, 2), two(piece, 2);
    const cudaStream_t here = new_stream();
    const cudaEvent_t written = new_event();
    Count *wrong = zeroed<Count>();
    DO(cudaSetDevice(1));
    const cudaStream_t there = new_stream();
    const cudaEvent_t back = new_event();
    Count *wrong_there = zeroed<Count>();
    for (unsigned i = 0; i < 200; i++) {
        const unsigned base = i * 1000003;
        DO(cudaSetDevice(0));
        RUN(fill, blocks, here, one.words(), window, base, 0);
        DO(cudaEventRecord(written, here));
        DO(cudaSetDevice(1));
        DO(cudaStreamWaitEvent(there, written));
        RUN(verify, blocks, there, two.words(), window, base, 1, wrong_there);
        RUN(fill, blocks, there, two.words(), window, base + 7, 0);
        DO(cudaEventRecord(back, there));
        DO(cudaSetDevice(0));
        DO(cudaStreamWaitEvent(here, back));
        RUN(verify, blocks, here, one.words(), window, base + 7, 1, wrong);
    }
    promise("a peer writes, the first device reads by the other address", take(wrong));
    DO(cudaSetDevice(1));
    promise("the first device writes, a peer reads by the other address", take(wrong_there));
}

// ---- The last of a device's memory

void tell_room(const char *how, std::vector<size_t> sizes,
               const std::function<bool(size_t)> &take) {
    size_t before, after, total, sum = 0;
    std::string parts;
    DO(cuMemGetInfo(&before, &total));
    for (const size_t mib : sizes) {
        size_t count = 0;
        for (; take(mib * MiB); count++) {
        }
        sum += count * mib;
        parts += (parts.empty() ? "" : " + ") + std::to_string(count) + " x " + std::to_string(mib);
    }
    DO(cuMemGetInfo(&after, &total));
    say("measured", "%s: %zu MiB (%s MiB) of %zu free, %zu still free", how, sum, parts.c_str(),
        before / MiB, after / MiB);
}

void ask_room() {
    std::vector<Piece> held;
    const auto create = [&](size_t size) {
        try {
            held.emplace_back(size);
        } catch (const Error &) {
            return false;
        }
        return true;
    };
    const auto release = [&] {
        for (const Piece &piece : held) {
            DO(cuMemRelease(piece.handle));
        }
        held.clear();
    };
    for (const size_t mib : {1024, 64, 2}) {
        tell_room("handles of one size", {mib}, create);
        release();
    }
    std::vector<void *> blocks_held;
    tell_room("cudaMallocAsync", {1024, 64, 2}, [&](size_t size) {
        void *block;
        if (cudaMallocAsync(&block, size, nullptr) != cudaSuccess) {
            cudaGetLastError(); // the next launch is not to tell of it
            return false;
        }
        blocks_held.push_back(block);
        return true;
    });
    for (void *block : blocks_held) {
        DO(cudaFreeAsync(block, nullptr));
    }
    DO(cudaDeviceSynchronize());
    cudaMemPool_t pool;
    DO(cudaDeviceGetDefaultMemPool(&pool, 0));
    DO(cudaMemPoolTrimTo(pool, 0));
    std::string refused = "no mapping was refused";
    const auto place = [&](const Piece &piece) {
        Place place(piece.size);
        try {
            place.map(piece);
            place.permit();
        } catch (const Error &error) {
            refused = "refused: " + error.text;
            cuMemUnmap(place.at, place.size);
            return false;
        }
        return true;
    };
    tell_room("handles, each mapped as it comes", {1024, 64, 2}, [&](size_t size) {
        if (!create(size)) {
            return false;
        }
        if (!place(held.back())) {
            DO(cuMemRelease(held.back().handle));
            held.pop_back();
            return false;
        }
        return true;
    });
    say("measured", "the full device: %s", refused.c_str());
    size_t second = 0;
    while (second < 5000 && !held.empty() && place(held[second % held.size()])) {
        second++;
    }
    say("measured", "second mappings on the full device: %zu, %s", second, refused.c_str());
}

struct Question {
    const char *name;
    void (*ask)();
};

const Question questions[] = {
    {"cost", ask_cost},
    {"part", ask_part},
    {"many", ask_many},
    {"stream", [] { ask_order(Order::one_stream, true, "one stream"); }},
    {"legacy", [] { ask_order(Order::legacy_stream, true, "legacy and blocking stream"); }},
    {"events", [] { ask_order(Order::events, true, "two streams and events"); }},
    {"graph", [] { ask_order(Order::graph, true, "a graph of two streams"); }},
    {"memory", [] { ask_order(Order::memory, false, "cuStreamWaitValue32"); }},
    {"programmatic", ask_programmatic},
    {"resident", ask_resident},
    {"reuse", ask_reuse},
    {"latency", ask_latency},
    {"peer", ask_peer},
    {"room", ask_room},
};

[[noreturn]] void answer(const Question &question) {
    alarm(120);
    try {
        int count = 0;
        DO(cuInit(0));
        DO(cudaSetDevice(0));
        DO(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
        blocks = unsigned(count);
        question.ask();
        DO(cudaDeviceSynchronize());
    } catch (const Error &error) {
        say("failed", "%s: %s", question.name, error.text.c_str());
        status = status ? status : 2;
    }
    _exit(status);
}

} // namespace

int main(int argc, char **argv) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); // loading would wait for a resident kernel
    bool asked = false, wrong = false, failed = false;
    for (const Question &question : questions) {
        const auto named = [&](const char *name) { return std::string(name) == question.name; };
        if (argc > 1 && std::none_of(argv + 1, argv + argc, named)) {
            continue;
        }
        asked = true;
        const pid_t child = fork();
        if (child == 0) {
            answer(question);
        }
        int ended = 0;
        waitpid(child, &ended, 0);
        if (WIFSIGNALED(ended)) {
            say("failed", "%s: signal %d", question.name, WTERMSIG(ended));
        }
        wrong = wrong || (WIFEXITED(ended) && WEXITSTATUS(ended) == 1);
        failed = failed || (ended != 0);
    }
    if (!asked) {
        fprintf(stderr, "%s: no question has this name; those of the table in the source do\n",
                *argv);
    }
    return wrong ? 1 : failed || !asked ? 2 : 0;
}
