#pragma once

#include <csignal>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

namespace emm::observe {

// An open file, closed by the destructor and by exec. If it is `noted` (see descriptors.h), forked
// children close it too.
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
 * FIFO would, and a file of an unexpected kind is refused. If there is no file, `ret_reason` says
 * why: "PATH is a FIFO; expected a regular file".
 */
File open_to_read(const std::string &path, std::string &ret_reason);

// Opens for appending, and makes the file if it is missing, but not its folder. A regular file must
// be this user's, as in open_own; a character device (a terminal, /dev/null) is accepted.
File open_to_append(const std::string &path, std::string &ret_reason);

// Whether a missing file is made, with the umask's permissions or for its owner only.
enum class Make { no, yes, by_owner_only };

// Opens a file that this user has made, because other users may be able to replace the file. No
// symbolic link is followed. Forked children do not have it, because they would prolong a lock on
// it. With Make::no, a missing file gives no reason.
File open_own(const std::string &path, Make make, std::string &ret_reason);

// Whether both are the same file. The second function: whether the file still has this name.
bool is_same(const File &one, const File &other);
bool is_named(const File &file, const std::string &path);

// Locks the whole file for its writer. The lock belongs to this opening: another opening has to
// wait, even in the same process. It ends when the opening and its mappings end. False: errno is
// EAGAIN if another opening has the lock.
bool lock_for_writing(const File &file);

// "%p" is the process id.
std::string with_process_id(std::string_view name);

// While it lives, writes that would end the process fail instead: with EFBIG beyond RLIMIT_FSIZE,
// with EPIPE if no process reads. For the calling thread; errno is kept.
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
