/* A disk that is watched, and that fails: loaded before the C library (LD_PRELOAD).

   DISK_FOLDER   only files below it count
   DISK_FAIL     the operation that fails with EIO, from 1; 0: none. All later ones of the same kind work again
   DISK_DIE      the operation at which the process is killed, before it is done; 0: none
   DISK_LOG      file for a record of writes, syncs, truncations, renames and removals: kind, length of path, offset, length of data (native 64 bits each), path, data
   DISK_COUNT    file for the number of operations, written over and over
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static long seen;

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)

static int raw_open(const char *path, int flags) {
    REAL(int, "open64", const char *, int, ...);
    return real(path, flags, 0600);
}

static ssize_t raw_write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return real(fd, data, size);
}

static int ours(const char *path) {
    const char *folder = getenv("DISK_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static const char *named(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, 4095);
    path[size < 0 ? 0 : size] = 0;
    return path;
}

/* Whether this operation is the one that fails. What the program notes for the test never does. */
static int fails(const char *path) {
    const char *name = strrchr(path, '/');
    if (name && strcmp(name, "/acks") == 0) return 0;
    const char *at = getenv("DISK_FAIL"), *die = getenv("DISK_DIE"), *count = getenv("DISK_COUNT");
    pthread_mutex_lock(&one);
    long now = ++seen;
    if (count) {
        char text[32];
        int fd = raw_open(count, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC);
        raw_write(fd, text, snprintf(text, sizeof text, "%ld", now));
        close(fd);
    }
    pthread_mutex_unlock(&one);
    if (die && now == atol(die)) kill(getpid(), SIGKILL);
    return at && now == atol(at);
}

static void note(int64_t kind, const char *path, int64_t offset, const void *data, int64_t size) {
    static int log = -1;
    if (!getenv("DISK_LOG")) return;
    pthread_mutex_lock(&one);
    if (log < 0) log = raw_open(getenv("DISK_LOG"), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC);
    int64_t head[4] = {kind, strlen(path), offset, size};
    struct iovec parts[3] = {{head, sizeof head}, {(void *)path, strlen(path)}, {(void *)data, size}};
    if (writev(log, parts, 3) < 0) abort();
    pthread_mutex_unlock(&one);
}

#define GUARDED(fd, failure) \
    char path[4096]; \
    int counts = ours(named(fd, path)); \
    if (counts && fails(path)) { errno = EIO; return failure; }

#define PWRITE(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) { \
        REAL(ssize_t, #name, int, const void *, size_t, offset_type); \
        GUARDED(fd, -1) \
        ssize_t done = real(fd, data, size, offset); \
        if (counts && done > 0) note(1, path, offset, data, done); \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    GUARDED(fd, -1)
    off_t at = counts ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t done = raw_write(fd, data, size);
    if (counts && done > 0) note(1, path, at, data, done);
    return done;
}

#define SYNC(name) \
    int name(int fd) { \
        REAL(int, #name, int); \
        GUARDED(fd, -1) \
        int done = real(fd); \
        if (counts && done == 0) note(2, path, 0, "", 0); \
        return done; \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, offset_type) \
    int name(int fd, offset_type size) { \
        REAL(int, #name, int, offset_type); \
        GUARDED(fd, -1) \
        int done = real(fd, size); \
        if (counts && done == 0) note(3, path, size, "", 0); \
        return done; \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        int mode = va_arg(more, int); \
        va_end(more); \
        if (ours(path) && (flags & (O_CREAT | O_WRONLY | O_RDWR)) && fails(path)) { errno = EIO; return -1; } \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (ours(to) && fails(to)) { errno = EIO; return -1; }
    int done = real(from, to);
    if (ours(to) && done == 0) note(4, to, 0, "", 0);
    return done;
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    int done = real(path);
    if (ours(path) && done == 0) note(5, path, 0, "", 0);
    return done;
}

int renameat(int folder, const char *from, int other, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    char path[4096];
    if (ours(named(other, path)) && fails(path)) { errno = EIO; return -1; }
    return real(folder, from, other, to);
}
