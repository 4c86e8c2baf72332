// Threads that carry out tasks, one at a time: so a step may run on any thread, and a seed gives
// the same steps every time.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace model {

class Hand {
public:
    Hand() : thread_([this] { work(); }) {}
    ~Hand() {
        begin(nullptr);
        thread_.join();
    }
    Hand(const Hand &) = delete;
    Hand &operator=(const Hand &) = delete;

    void begin(std::function<void()> task) {
        const std::lock_guard lock(mutex_);
        task_ = std::move(task);
        busy_ = true;
        changed_.notify_all();
    }
    void finish() { // throws the task's exception
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !busy_; });
        if (thrown_) {
            std::rethrow_exception(std::exchange(thrown_, nullptr));
        }
    }

private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return busy_; });
            if (!task_) {
                return;
            }
            lock.unlock();
            try {
                task_();
            } catch (...) {
                thrown_ = std::current_exception();
            }
            lock.lock();
            busy_ = false;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> task_; // NULL: the thread ends
    std::exception_ptr thrown_;
    bool busy_ = false;
    std::thread thread_;
};

class Hands {
public:
    explicit Hands(size_t count) {
        for (size_t i = 0; i < count; i++) {
            hands_.push_back(std::make_unique<Hand>());
        }
    }
    size_t count() const { return hands_.size(); }
    // Gives the task's answer, or throws its exception.
    template <class Task> auto run(size_t hand, const Task &task) {
        decltype(task()) answer{};
        hands_[hand]->begin([&] { answer = task(); });
        hands_[hand]->finish();
        return answer;
    }
    // At the same time.
    void run_both(size_t hand, const std::function<void()> &task, size_t other,
                  const std::function<void()> &other_task) {
        hands_[hand]->begin(task);
        hands_[other]->begin(other_task);
        hands_[hand]->finish();
        hands_[other]->finish();
    }
    void replace(size_t hand) { // by a new thread
        hands_[hand].reset();
        hands_[hand] = std::make_unique<Hand>();
    }

private:
    std::vector<std::unique_ptr<Hand>> hands_;
};

} // namespace model
