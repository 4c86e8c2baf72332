#pragma once

#include <csignal>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

namespace emm::observe {

// An open file, closed at the end and in programs that are exec'ed. One that is `noted` (see
// descriptors.h) is closed in forked children too.
class File {
public:
    File() = default;
    explicit File(int number, bool noted = false) : number_(number), noted_(noted) {}
    ~File() { close(); }
    File(File &&other) noexcept : number_(std::exchange(other.number_, -1)), noted_(other.noted_) {}
    File &operator=(File &&other) noexcept {
        std::swap(number_, other.number_);
        std::swap(noted_, other.noted_);
        return *this;
    }
    explicit operator bool() const { return number_ >= 0; }
    int number() const { return number_; }
    void close();

private:
    int number_ = -1;
    bool noted_ = false;
};

/*
 * Files whose names come from the environment or from another file. Opening one never waits, as a
 * FIFO would make it, and what is there must be what is expected. If there is no file, `ret_reason`
 * says why: "PATH is a FIFO; expected a regular file".
 */
File open_to_read(const std::string &path, std::string &ret_reason);

// Made if it is not there, though its folder is not; text is appended. A regular file is this
// user's, as in open_own; a character device will do: a terminal, /dev/null.
File open_to_append(const std::string &path, std::string &ret_reason);

// Whether a file is created, for those whom the umask allows or for its owner only.
enum class Make { no, yes, by_owner_only };

// A file that this user has made: other users may be able to put something of theirs in its place.
// No symbolic link is followed. Forked children do not have it: they would prolong a lock on it.
// With Make::no, no reason is given if nothing is there.
File open_own(const std::string &path, Make make, std::string &ret_reason);

// Whether both are the same file; the second, whether it is still the one that has this name.
bool is_same(const File &one, const File &other);
bool is_named(const File &file, const std::string &path);

// Locks the whole file for its writer. The lock is this opening's: another one has to wait, in the
// same process too. It ends with the opening, which a mapping would prolong. False: errno is EAGAIN
// if another opening has it.
bool lock_for_writing(const File &file);

// "%p" is the process id.
std::string with_process_id(std::string_view name);

// While it lives, a write that would end the process fails instead: with EFBIG beyond RLIMIT_FSIZE,
// with EPIPE where no process reads. For the calling thread; errno stays.
class WriteSignalsBlocked {
public:
    WriteSignalsBlocked() noexcept;
    ~WriteSignalsBlocked();
    WriteSignalsBlocked(const WriteSignalsBlocked &) = delete;
    WriteSignalsBlocked &operator=(const WriteSignalsBlocked &) = delete;

private:
    sigset_t mask_before_, pending_before_;
};

} // namespace emm::observe
