// A program on the driver API without emm, one of many that ring.py starts under `emm run` in one
// budget: ring_member BOARD SLOT INCARNATION SLOTS LIMIT_BYTES PACE_US SEED [FAULT]. The members
// are in a ring: each offers memory by cuIpcGetMemHandle to the next one, which compares it with
// what the board says, writes an answer behind it and closes it. Besides, each fills, checks and
// frees memory of its own, and looks whether all members together have more than the budget. The
// first wrong thing goes to the board, and ends the process with status 3. With a FAULT a member
// does one wrong thing, for ring_test.py.
#include "driver.h"
#include "objects.h"
#include "ring_board.h"

#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <simcuda.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace ring;

namespace {

Board *board = nullptr;
Slot *members = nullptr; // behind the board
Slot *self = nullptr, *before = nullptr, *behind = nullptr;
uint64_t incarnation = 0, slots = 0, limit = 0;
useconds_t pace = 0;
std::string fault;
std::mt19937 chance;
CUstream stream = nullptr;

[[noreturn]] __attribute__((format(printf, 1, 2))) void wrong(const char *format, ...) {
    va_list words;
    va_start(words, format);
    std::vsnprintf(self->wrong, sizeof self->wrong, format, words);
    va_end(words);
    self->counting += self->counting % 2; // the member behind it may find it dead
    std::_Exit(3);
}

void require(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        wrong("%s: CUDA error %d", call, int(result));
    }
}
#define REQUIRE(call) require(call, #call)

void begin(Doing what) {
    self->doing = what;
    ++self->beats;
}

size_t up_to(size_t most) {
    return std::uniform_int_distribution<size_t>(0, most)(chance);
}

// Before a free, and after an allocation: so the members' bytes never count twice.
void count_live(uint64_t added, uint64_t removed) {
    self->live = self->live + added - removed;
    ++self->version;
}

// --- the budget

struct Seen {
    uint64_t counting, version;
    bool operator==(const Seen &) const = default;
};

uint64_t collect(std::vector<Seen> &ret_seen) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < slots; ++i) {
        const Slot &slot = members[i];
        ret_seen.push_back({slot.counting, slot.version});
        sum += slot.counting % 2 ? uint64_t(slot.live) : 0;
    }
    return sum;
}

// Two collections without a change between them show one moment.
void look_at_budget() {
    std::vector<Seen> first, second;
    const uint64_t sum = collect(first);
    collect(second);
    if (first != second) {
        return;
    }
    ++self->count[looks];
    if (sum > limit) {
        wrong("the members have %zu bytes, and the budget is %zu", size_t(sum), size_t(limit));
    }
}

// --- memory of its own

struct Block {
    CUdeviceptr address = 0;
    size_t size = 0;
    unsigned value = 0;
    bool is_ordered = false;
};

// Each doubling is as likely, up to half of a member's part of the budget.
size_t random_size() {
    static const auto doublings = static_cast<size_t>(std::bit_width(limit / slots / 2 / page) - 1);
    return (page << up_to(doublings)) + 512 * up_to(7);
}

// An address of 0: refused for want of memory.
Block take(size_t size) {
    begin(allocating);
    Block made = {0, size, unsigned(chance()), up_to(2) == 0};
    const CUresult result = made.is_ordered ? cu.cuMemAllocAsync(&made.address, size, stream)
                                            : cu.cuMemAlloc(&made.address, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        ++self->count[refused];
        return {};
    }
    require(result, "an allocation");
    count_live(fault == "over" ? limit + 1 : size, 0);
    ++self->count[allocated];
    return made;
}

void give_back(const Block &block) {
    begin(freeing);
    count_live(0, block.size);
    require(block.is_ordered ? cu.cuMemFreeAsync(block.address, stream)
                             : cu.cuMemFree(block.address),
            "a free");
    ++self->count[freed];
}

void check(const Block &block) {
    begin(checking);
    if (!holds(block.address, block.size, block.value, stream)) {
        wrong("a block of its own of %zu bytes has lost its content", block.size);
    }
    ++self->count[checked];
}

class Blocks {
public:
    void step() {
        if (board->lean || (!blocks_.empty() && up_to(3) == 0)) {
            drop_one();
        } else if (blocks_.size() < most && up_to(1) == 0) {
            add_one();
        } else if (!blocks_.empty()) {
            check(blocks_[up_to(blocks_.size() - 1)]);
        }
    }
    void check_all() const {
        for (const Block &block : blocks_) {
            check(block);
        }
    }
    void clear() {
        while (!blocks_.empty()) {
            drop_one();
        }
    }

private:
    static constexpr size_t most = 24;

    void drop_one() {
        if (!blocks_.empty()) {
            std::swap(blocks_[up_to(blocks_.size() - 1)], blocks_.back());
            check(blocks_.back());
            give_back(blocks_.back());
            blocks_.pop_back();
        }
    }
    void add_one() {
        const Block made = take(random_size());
        if (!made.address) {
            for (size_t half = blocks_.size() / 2; half > 0; --half) {
                drop_one();
            }
            return;
        }
        blocks_.push_back(made);
        REQUIRE(fill(made.address, made.size, made.value, stream));
    }

    std::vector<Block> blocks_;
};

// --- memory for the member behind this one

// The exporter writes the first half of a block, the importer answers in the second.
unsigned answer_to(unsigned value) {
    return ~value;
}

class Offer {
public:
    void step() {
        if (!block_.address) {
            make();
        } else if (self->offer % 2 == 0) {
            if (up_to(20) == 0) {
                withdraw();
            }
        } else if (!is_held()) {
            end();
        }
    }
    // False: the importer still has it open.
    bool ended() {
        if (block_.address && self->offer % 2 == 0) {
            withdraw();
        }
        if (block_.address && !is_held()) {
            end();
        }
        return !block_.address;
    }

private:
    void make() {
        block_ = board->lean ? Block() : take((random_size() / 8 + 1) * 8);
        if (!block_.address) {
            return;
        }
        REQUIRE(fill(block_.address, block_.size, block_.value, stream));
        REQUIRE(cu.cuStreamSynchronize(stream));
        begin(exporting);
        CUipcMemHandle handle;
        REQUIRE(cu.cuIpcGetMemHandle(&handle, block_.address));
        std::memcpy(self->handle, &handle, sizeof handle);
        self->offer_size = block_.size;
        self->offer_value = block_.value + (fault == "content");
        importer_ = behind->incarnation;
        ++self->offer;
        ++self->count[offered];
    }
    void withdraw() { ++self->offer; }
    // The importer names what it holds before it opens it, and looks again whether it is offered.
    bool is_held() const {
        return behind->held_incarnation == incarnation && behind->held_offer == self->offer - 1;
    }
    bool is_answered() const {
        return behind->answered_incarnation == incarnation &&
               behind->answered_offer == self->offer - 1 && behind->incarnation == importer_;
    }
    void end() {
        begin(verifying);
        const size_t half = block_.size / 2;
        if (!holds(block_.address, half, block_.value, stream)) {
            wrong("its memory has lost its content in the ring");
        }
        if (is_answered()) {
            if (!holds(block_.address + half, half, answer_to(block_.value), stream)) {
                wrong("an answer of the member behind it is not in the memory");
            }
            ++self->count[answers];
        }
        give_back(block_);
        block_ = {};
    }

    Block block_;
    uint64_t importer_ = 0; // its incarnation when the offer was made
};

// --- memory of the member before this one

class Import {
public:
    void step() {
        if (address_ == 0) {
            open();
        } else if (up_to(4) != 0) {
            read();
        } else {
            close();
        }
    }
    void close() {
        if (address_ == 0) {
            return;
        }
        read();
        answer();
        begin(closing);
        REQUIRE(cu.cuIpcCloseMemHandle(address_));
        address_ = 0;
        end_hold();
    }

private:
    bool is_offered() const { return before->incarnation == exporter_ && before->offer == offer_; }
    void end_hold() {
        self->held_incarnation = 0;
        self->held_offer = 0;
    }
    void open() {
        exporter_ = before->incarnation;
        offer_ = before->offer;
        if (!exporter_ || offer_ == 0 || offer_ % 2 != 0 ||
            (exporter_ == seen_ && offer_ == last_)) {
            return;
        }
        CUipcMemHandle handle;
        std::memcpy(&handle, before->handle, sizeof handle);
        half_ = before->offer_size / 2;
        value_ = unsigned(before->offer_value);
        self->held_incarnation = exporter_;
        self->held_offer = offer_;
        const uint64_t counting = before->counting;
        if (!is_offered()) {
            return end_hold();
        }
        begin(opening);
        const CUresult result =
            cu.cuIpcOpenMemHandle(&address_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (result != CUDA_SUCCESS) {
            refuse(result, counting);
        }
    }
    // An exporter that is killed or asleep counts no more beforehand. A busy one is asked again.
    void refuse(CUresult result, uint64_t counting) {
        address_ = 0;
        if (is_offered() && counting % 2 && before->counting == counting) {
            ++self->count[late_opens];
            if (result != CUDA_ERROR_MAP_FAILED) {
                wrong("memory that the member before it offers cannot be opened: CUDA error %d",
                      int(result));
            }
        }
        end_hold();
    }
    void read() {
        begin(reading);
        const bool is_dead = before->incarnation != exporter_;
        if (!holds(address_, half_, value_, stream)) {
            wrong("the memory of the member before it, which %s, is not what that has written",
                  is_dead ? "is dead" : "lives");
        }
        ++self->count[ring_reads];
        self->count[reads_of_dead] += is_dead;
    }
    void answer() {
        begin(answering);
        REQUIRE(fill(address_ + half_, half_, answer_to(value_), stream));
        REQUIRE(cu.cuStreamSynchronize(stream));
        self->answered_offer = offer_;
        self->answered_incarnation = exporter_;
        seen_ = exporter_;
        last_ = offer_;
    }

    CUdeviceptr address_ = 0;
    size_t half_ = 0;
    unsigned value_ = 0;
    uint64_t exporter_ = 0, offer_ = 0; // of what it looks at
    uint64_t seen_ = 0, last_ = 0;      // of what it has closed
};

// --- its life

uint64_t device_bytes() {
    static const auto get = entry_of<decltype(simcuda_get_counters)>("simcuda_get_counters");
    simcuda_counters counters = {};
    counters.struct_size = sizeof counters;
    if (get) {
        get(&counters);
    }
    return counters.device_bytes;
}

// Once it has stopped, what it has of the device stands on the board, for each number anew.
void wait_for_census(Blocks &blocks, Import &import) {
    if (board->released >= board->census) {
        return;
    }
    import.close();
    blocks.check_all();
    REQUIRE(cu.cuStreamSynchronize(stream));
    while (board->released < board->census) {
        begin(waiting);
        const uint64_t number = board->census;
        self->device_bytes = device_bytes();
        self->census = number;
        usleep(20'000);
    }
}

void misbehave() {
    if (fault == "hang") {
        for (;;) {
            pause();
        }
    }
    if (fault == "file") {
        close(open((std::getenv("TMPDIR") + std::string("/left")).c_str(), O_CREAT | O_RDWR, 0600));
    }
    if (fault == "child") {
        fault.clear();
        if (fork() == 0) {
            sleep(60);
            std::_Exit(0);
        }
    }
    if (fault == "leave") {
        std::_Exit(0);
    }
}

void live() {
    Blocks blocks;
    Offer offer;
    Import import;
    while (!board->over) {
        wait_for_census(blocks, import);
        blocks.step();
        offer.step();
        import.step();
        look_at_budget();
        misbehave();
        begin(resting);
        usleep(static_cast<useconds_t>(up_to(2 * pace)));
    }
    import.close();
    while (!offer.ended()) {
        begin(ending);
        usleep(1000);
    }
    blocks.clear();
    REQUIRE(cu.cuStreamSynchronize(stream));
    begin(ending);
}

bool map_board(const char *path) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    const size_t size = sizeof(Board) + slots * sizeof(Slot);
    void *const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    board = static_cast<Board *>(mapped);
    members = reinterpret_cast<Slot *>(board + 1);
    return mapped != MAP_FAILED;
}

} // namespace

int main(int count, char **words) {
    if (count < 8) {
        std::fprintf(
            stderr,
            "usage: ring_member BOARD SLOT INCARNATION SLOTS LIMIT_BYTES PACE_US SEED [FAULT]\n");
        return 2;
    }
    const auto number = [&](int i) { return std::strtoull(words[i], nullptr, 10); };
    const uint64_t place = number(2);
    incarnation = number(3), slots = number(4), limit = number(5);
    pace = static_cast<useconds_t>(number(6));
    chance.seed(static_cast<unsigned>(number(7)));
    fault = count > 8 ? words[8] : "";
    if (!map_board(words[1])) {
        std::perror(words[1]);
        return 2;
    }
    self = &members[place];
    before = &members[(place + slots - 1) % slots];
    behind = &members[(place + 1) % slots];
    self->offer = 1;
    const std::string missing = find_driver("dlsym");
    if (!missing.empty()) {
        wrong("%s", missing.c_str());
    }
    const Primary primary;
    REQUIRE(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    live();
    return 0;
}
