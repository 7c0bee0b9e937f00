/*
 * A disk that fails, for a process that is started with this library in LD_PRELOAD.
 *
 * PENSTOCK_FAULTY_DISK names a control file of three 32-bit numbers, which tests change while the process runs:
 * how many of the next writes fail, how many of the next syncs fail, and how many failed so far. Only files of the
 * file system that PENSTOCK_FAULTY_ROOT lies on are concerned.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    _Atomic int32_t writes;
    _Atomic int32_t syncs;
    _Atomic int32_t failed;
};

static struct control *control;
static dev_t device;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("PENSTOCK_FAULTY_DISK");
    const char *root = getenv("PENSTOCK_FAULTY_ROOT");
    struct stat status;
    if (path == NULL || root == NULL || stat(root, &status) != 0)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return;
    device = status.st_dev;
    control = mapped;
}

static int fails(int fd, _Atomic int32_t *left)
{
    struct stat status;
    if (*left <= 0 || fstat(fd, &status) != 0 || status.st_dev != device)
        return 0;
    if ((*left)-- <= 0)
        return 0;
    control->failed++;
    errno = EIO;
    return 1;
}

#define WRITE(name, type, arguments, names)                                   \
    type name arguments                                                       \
    {                                                                         \
        static type (*real) arguments;                                        \
        if (real == NULL)                                                     \
            real = (type(*) arguments)dlsym(RTLD_NEXT, #name);                \
        if (control != NULL && fails(fd, &control->writes))                   \
            return -1;                                                        \
        return real names;                                                    \
    }

WRITE(pwrite, ssize_t, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRITE(pwrite64, ssize_t, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRITE(pwritev, ssize_t, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))
WRITE(pwritev64, ssize_t, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at))
WRITE(pwritev2, ssize_t, (int fd, const struct iovec *parts, int count, off_t at, int flags),
      (fd, parts, count, at, flags))
WRITE(pwritev64v2, ssize_t, (int fd, const struct iovec *parts, int count, off64_t at, int flags),
      (fd, parts, count, at, flags))

#define SYNC(name)                                                            \
    int name(int fd)                                                          \
    {                                                                         \
        static int (*real)(int);                                              \
        if (real == NULL)                                                     \
            real = (int (*)(int))dlsym(RTLD_NEXT, #name);                     \
        if (control != NULL && fails(fd, &control->syncs))                    \
            return -1;                                                        \
        return real(fd);                                                      \
    }

SYNC(fsync)
SYNC(fdatasync)
