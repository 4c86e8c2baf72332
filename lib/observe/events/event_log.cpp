#include "observe/events/event_log.h"

#include "fence/asymmetric_fence.h"
#include "observe/callers/modules.h"
#include "observe/environment.h"
#include "observe/events/log_writer.h"
#include "observe/events/module.h"
#include "observe/events/python_calls.h"
#include "observe/file.h"
#include "observe/log.h"
#include "observe/process.h"

#include <emm/plugin.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace emm::observe {
namespace {

constexpr auto between_writes = std::chrono::milliseconds(50);
constexpr size_t most_chunks = 16384; // 1 GiB waits to be written: then recording waits

// Earlier stores of any thread are visible here afterwards, and later code of any thread sees our
// earlier stores.
void fence_all_threads() noexcept {
    static const bool registered = register_asymmetric_fence();
    if (!registered || asymmetric_fence() != 0) {
        slow_asymmetric_fence();
    }
}

} // namespace

[[gnu::tls_model("initial-exec")]] thread_local constinit EventBuffer *own_event_buffer = nullptr;

class EventLog {
public:
    static EventLog *open(const std::string &path, std::string &ret_reason);

    EventBuffer *take_buffer();
    void give_back(EventBuffer *buffer);
    bool next_chunk(EventBuffer &buffer);
    void know_module(EventBuffer &buffer, uint64_t caller);
    uint32_t python_number_of(const Stack &stack) { return python_calls_.number_of(stack); }
    void write(bool everything) noexcept;
    void write_at_exit() noexcept;
    bool has_ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

    // False in every child, even if making it called no fork handlers (_Fork, clone).
    bool is_of_this_process() const noexcept { return getpid() == process_; }

private:
    EventLog(std::unique_ptr<Spool> spool, File csv, std::string path)
        : path_(std::move(path)), spool_(std::move(spool)), csv_(std::move(csv)),
          writer_(*spool_, csv_.number()) {
        spare_ = spool_->chunks();
        chunks_ = spare_.size();
    }
    void start_writer();
    void write_for_ever() noexcept;
    bool grow();
    Chunk *spare_chunk(EventBuffer &buffer);
    void keep_spares();
    uint64_t watermark() noexcept;
    std::vector<std::vector<Chunk *>> chunks_of_buffers();
    void recycle();

    const pid_t process_ = getpid();
    const std::string path_;
    const std::unique_ptr<Spool> spool_;
    File csv_;
    pthread_key_t key_ = 0; // its destructor gives a thread's buffer back

    std::mutex growing_;            // guards the spool's list of chunks
    std::atomic<size_t> chunks_{0}; // in the spool

    std::mutex mutex_; // guards the rest of this block; held for moments only
    std::condition_variable wanted_;
    std::deque<EventBuffer> buffers_;
    std::vector<EventBuffer *> idle_buffers_;
    std::vector<Chunk *> spare_;
    std::atomic<bool> lost_{false}; // an event, for want of room: said once

    std::mutex writing_; // guards the members below, except the last
    LogWriter writer_;
    std::atomic<bool> ended_{false}; // the log file cannot be written

    PythonCalls python_calls_{[this](const std::string &calls) {
        const std::lock_guard lock(mutex_);
        return spool_->add_line(to_line(calls));
    }};
};

namespace {

std::atomic<EventLog *> the_log{nullptr}; // set once, before the first event

void give_back_buffer(void *buffer) {
    own_event_buffer = nullptr;
    if (!is_forked_child()) {
        the_log.load()->give_back(static_cast<EventBuffer *>(buffer));
    }
}

// Makes the path absolute, because the program may change its folder.
std::string path_of(std::string_view name) {
    return name.empty() ? "" : std::filesystem::absolute(with_process_id(name)).string();
}

// Locks the file before emptying it: a process that has the lock is writing it, perhaps by another
// name.
File open_csv(const std::string &path, std::string &ret_reason) {
    const auto header = static_cast<ssize_t>(Rows::header.size());
    File csv = open_own(path, Make::yes, ret_reason);
    if (csv && !lock_for_writing(csv)) {
        ret_reason = path + (errno == EAGAIN || errno == EACCES
                                 ? " is being written by another process"
                                 : std::string(" cannot be locked: ") + std::strerror(errno));
        return File();
    }
    const WriteSignalsBlocked blocked;
    if (csv && (ftruncate(csv.number(), 0) != 0 ||
                ::write(csv.number(), Rows::header.data(), Rows::header.size()) != header)) {
        ret_reason = "cannot write " + path + ": " + std::strerror(errno);
        return File();
    }
    return csv;
}

EventLog *open_named() noexcept {
    try {
        const std::string path = path_of(environment("EMM_EVENT_LOG"));
        std::string reason;
        EventLog *log = path.empty() ? nullptr : EventLog::open(path, reason);
        if (!reason.empty()) {
            observe::log(EMM_LOG_WARN, "EMM_EVENT_LOG: {}; events are not recorded", reason);
        }
        return log;
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_WARN, "EMM_EVENT_LOG: {}", error.what());
        return nullptr;
    }
}

} // namespace

EventLog *EventLog::open(const std::string &path, std::string &ret_reason) {
    std::unique_ptr<Spool> spool = Spool::create(path + ".spool", ret_reason);
    if (!spool) {
        return nullptr;
    }
    File csv = open_csv(path, ret_reason);
    if (!csv) {
        spool->unlink();
        return nullptr;
    }
    SpoolHeader &header = spool->header();
    header.ns_per_tick = nanoseconds_per_event_tick();
    header.first_tick = event_ticks();
    header.csv_bytes[0] = Rows::header.size();
    std::unique_ptr<EventLog> log(new EventLog(std::move(spool), std::move(csv), path));
    if (pthread_key_create(&log->key_, give_back_buffer) != 0) {
        ret_reason = "no thread-specific key is left";
        log->spool_->unlink();
        return nullptr;
    }
    log->start_writer();
    return log.release(); // never destroyed: frees may come after all else
}

// The writer thread blocks all signals of the program.
void EventLog::start_writer() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread writer([this] { write_for_ever(); });
        pthread_setname_np(writer.native_handle(), "emm-events");
        writer.detach();
    } catch (const std::system_error &) {
        EventBuffer::is_immediate = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void EventLog::write_for_ever() noexcept {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            wanted_.wait_for(lock, between_writes);
        }
        keep_spares();
        write(false);
    }
}

bool EventLog::grow() {
    std::lock_guard growing(growing_);
    const size_t before = chunks_;
    if (before >= most_chunks || !spool_->grow()) {
        return false;
    }
    chunks_ = spool_->chunks().size();
    std::lock_guard lock(mutex_);
    spare_.insert(spare_.end(), spool_->chunks().begin() + static_cast<ptrdiff_t>(before),
                  spool_->chunks().end());
    return true;
}

// Makes room ahead of need, so that the writer takes the page faults.
void EventLog::keep_spares() {
    for (;;) {
        {
            std::lock_guard lock(mutex_);
            if (spare_.size() >= chunks_ / 4) {
                return;
            }
        }
        if (!grow()) {
            return;
        }
    }
}

EventBuffer *EventLog::take_buffer() {
    EventBuffer *buffer = nullptr;
    {
        std::lock_guard lock(mutex_);
        if (!idle_buffers_.empty()) {
            buffer = idle_buffers_.back();
            idle_buffers_.pop_back();
        } else {
            idle_buffers_.reserve(buffers_.size() + 1); // giving a buffer back must not fail
            buffer = &buffers_.emplace_back(static_cast<uint32_t>(buffers_.size()));
        }
    }
    pthread_setspecific(key_, buffer);
    return buffer;
}

void EventLog::give_back(EventBuffer *buffer) {
    std::lock_guard lock(mutex_);
    idle_buffers_.push_back(buffer);
}

// Rows that wait to be written may grow up to a limit. Beyond the limit, recording waits.
Chunk *EventLog::spare_chunk(EventBuffer &buffer) {
    for (int attempt = 0; attempt < 3; ++attempt) {
        {
            std::lock_guard lock(mutex_);
            if (!spare_.empty()) {
                buffer.chunks_.push_back(spare_.back());
                spare_.pop_back();
                if (spare_.size() < chunks_ / 8) {
                    wanted_.notify_one();
                }
                return buffer.chunks_.back();
            }
        }
        if (!grow()) {
            write(false);
        }
    }
    return nullptr;
}

bool EventLog::next_chunk(EventBuffer &buffer) {
    Chunk *const chunk = spare_chunk(buffer);
    if (!chunk) {
        if (!has_ended() && !lost_.exchange(true)) {
            log(EMM_LOG_WARN, "{}: events are lost: no buffer is free", path_);
        }
        return false;
    }
    chunk->buffer = buffer.number_;
    chunk->sequence = buffer.sequence_++;
    buffer.chunk_ = chunk;
    buffer.used_ = 0;
    return true;
}

// The range is remembered even if no file is loaded there, as for code made at run time.
void EventLog::know_module(EventBuffer &buffer, uint64_t caller) {
    for (const EventBuffer::Range &range : buffer.modules_) {
        if (caller - range.begin < range.end - range.begin) {
            buffer.module_ = range;
            return;
        }
    }
    constexpr uint64_t page = 4096;
    modules().notice_unloads(); // another library may lie there by now
    const CodeRange *const found = modules().find(caller);
    const uint64_t begin = caller & ~(page - 1);
    buffer.module_ = found ? EventBuffer::Range{found->begin, found->end}
                           : EventBuffer::Range{begin, begin + page};
    buffer.modules_.push_back(buffer.module_);
    if (found) {
        const std::string line =
            to_line({found->begin, found->end, found->base, modules().path(found->module)});
        std::lock_guard lock(mutex_);
        spool_->add_line(line);
    }
}

// Every event before this moment has been committed.
uint64_t EventLog::watermark() noexcept {
    uint64_t moment = event_ticks();
    fence_all_threads();
    std::lock_guard lock(mutex_);
    for (const EventBuffer &buffer : buffers_) {
        const uint64_t since = buffer.busy_since_.load(std::memory_order_acquire);
        moment = since == 0 ? moment : std::min(moment, since);
    }
    return moment;
}

std::vector<std::vector<Chunk *>> EventLog::chunks_of_buffers() {
    std::lock_guard lock(mutex_);
    std::vector<std::vector<Chunk *>> all;
    for (const EventBuffer &buffer : buffers_) {
        all.push_back(buffer.chunks_);
    }
    return all;
}

// Empties the chunks that are full and written, for reuse.
void EventLog::recycle() {
    std::lock_guard lock(mutex_);
    for (EventBuffer &buffer : buffers_) {
        auto end = buffer.chunks_.begin();
        for (; end != buffer.chunks_.end() && writer_.written(**end) == Chunk::capacity &&
               *end != buffer.chunks_.back();
             ++end) {
            (*end)->committed.store(0, std::memory_order_release);
            std::fill(std::begin((*end)->written), std::end((*end)->written), 0);
            spare_.push_back(*end);
        }
        buffer.chunks_.erase(buffer.chunks_.begin(), end);
    }
}

void EventLog::write(bool everything) noexcept {
    std::lock_guard lock(writing_);
    if (has_ended()) {
        return;
    }
    try {
        const uint64_t until = everything ? ~uint64_t(0) : watermark();
        if (writer_.write(chunks_of_buffers(), until)) {
            recycle();
            return;
        }
        log(EMM_LOG_WARN,
            "cannot write {0}: {1}; the log ends here, and what was recorded last is in {0}.spool",
            path_, std::strerror(errno));
    } catch (const std::exception &error) {
        log(EMM_LOG_WARN, "{}: {}", path_, error.what());
    }
    ended_ = true;
}

void EventLog::write_at_exit() noexcept {
    EventBuffer::is_immediate = true;
    // Either this thread sees an event, or the event's thread sees that it must write.
    fence_all_threads();
    write(true);
    std::lock_guard lock(writing_);
    if (!has_ended()) {
        spool_->unlink();
    }
}

EventRecord *EventBuffer::next_slowly(uint64_t caller) noexcept {
    EventLog &log = *the_log.load(std::memory_order_relaxed);
    if (log.has_ended()) {
        return nullptr;
    }
    try {
        log.know_module(*this, caller);
        if ((chunk_ && used_ != Chunk::capacity) || log.next_chunk(*this)) {
            return &chunk_->records[used_];
        }
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_WARN, "an event is lost: {}", error.what());
    }
    return nullptr;
}

void EventBuffer::write_all() noexcept {
    the_log.load(std::memory_order_relaxed)->write(true);
}

EventBuffer *take_event_buffer() noexcept {
    try {
        own_event_buffer = the_log.load(std::memory_order_relaxed)->take_buffer();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
    return own_event_buffer;
}

uint32_t python_calls_number(const Stack &stack) noexcept {
    EventLog *const log = the_log.load(std::memory_order_relaxed);
    try {
        return log ? log->python_number_of(stack) : 0;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}

bool open_event_log() noexcept {
    static const bool open = [] {
        the_log = open_named();
        return the_log != nullptr;
    }();
    return open;
}

namespace {

// Runs after the program's own exit handlers and static destructors. Nothing is torn down: a later
// free is written by the thread that frees.
[[gnu::destructor]] void write_at_exit() {
    EventLog *const log = the_log;
    if (log && log->is_of_this_process()) {
        log->write_at_exit();
    }
}

} // namespace

} // namespace emm::observe
