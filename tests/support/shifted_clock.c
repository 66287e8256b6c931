/* The clock on the wall of one process, ahead of the machine's by as many seconds as a file says.
 *
 *   cc -shared -fPIC -o shifted_clock.so shifted_clock.c -ldl
 *   LD_PRELOAD=shifted_clock.so SHIFTED_CLOCK=FILE python3 ...
 *
 * The file holds one int64. A time namespace of Linux's would shift the monotonic clock, and that one only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t ahead(void) {
    static const volatile int64_t *seconds;
    if (seconds == NULL) {
        const char *path = getenv("SHIFTED_CLOCK");
        int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return 0;
        void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (mapped == MAP_FAILED) return 0;
        seconds = mapped;
    }
    return *seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out != NULL) *out = exact.tv_sec;
    return exact.tv_sec;
}
