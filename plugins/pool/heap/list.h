// A doubly linked list through a member of its elements: nothing is allocated, and any element can
// leave at once.
#pragma once

namespace emm::pool {

template <class T> struct Link {
    T *previous = nullptr;
    T *next = nullptr;
    bool linked = false;
};

template <class T, Link<T> T::*link> class List {
public:
    T *first() const { return first_; }
    bool empty() const { return !first_; }
    T *last() const { return last_; }
    static T *previous(const T &element) { return (element.*link).previous; }
    static T *next(const T &element) { return (element.*link).next; }

    void push_back(T &element) {
        (element.*link) = {last_, nullptr, true};
        (last_ ? (last_->*link).next : first_) = &element;
        last_ = &element;
    }
    void push_front(T &element) {
        (element.*link) = {nullptr, first_, true};
        (first_ ? (first_->*link).previous : last_) = &element;
        first_ = &element;
    }
    void insert_before(T &position, T &element) {
        T *before = (position.*link).previous;
        (element.*link) = {before, &position, true};
        (before ? (before->*link).next : first_) = &element;
        (position.*link).previous = &element;
    }
    void remove(T &element) {
        Link<T> &at = element.*link;
        (at.previous ? (at.previous->*link).next : first_) = at.next;
        (at.next ? (at.next->*link).previous : last_) = at.previous;
        at = {};
    }
    T *pop_front() {
        T *element = first_;
        if (element) {
            remove(*element);
        }
        return element;
    }

private:
    T *first_ = nullptr;
    T *last_ = nullptr;
};

} // namespace emm::pool
