// Calls of the C library that fail below one path, or a power cut at one of them: preloaded into a process, which arms it
// (tests/failing_disk/server.py).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LIST = 1, STAT = 2, OPEN = 4, CREATE = 8, READ = 16, WRITE = 32, SYNC = 64, CLOSE = 128, RENAME = 256, LINK = 512,
       MKDIR = 1024, UNLINK = 2048 };

static char below[PATH_MAX];
static unsigned armed;
static int number, inside, lasting;
static atomic_long left, hits;

enum { POWER_CUT = -1, MOST = 1 << 16 };
static ino_t unflushed[MOST];
static int unflushed_files;
static pthread_mutex_t files = PTHREAD_MUTEX_INITIALIZER;

// From now on, these calls fail with this number below `path`, after `after` more of them, once or for good.
// `within`: of the path itself, only listing it fails. A `number` of -1 is no error but a power cut: the files below `path`
// that this process wrote and did not flush are emptied, and it is killed.
void fault_arm(const char *path, unsigned calls, int error, long after, int for_good, int within) {
  strncpy(below, path, sizeof below - 1);
  number = error;
  inside = within;
  lasting = for_good;
  left = after;
  hits = 0;
  armed = calls;
}

long fault_hits(void) { return hits; }

// Note that a file was created or written, or that it was flushed.
static void note(int fd, int flushed) {
  struct stat found;
  if (number != POWER_CUT || fd < 0 || fstat(fd, &found)) return;
  pthread_mutex_lock(&files);
  int at = 0;
  while (at < unflushed_files && unflushed[at] != found.st_ino) at++;
  if (flushed && at < unflushed_files) unflushed[at] = unflushed[--unflushed_files];
  if (!flushed && at == unflushed_files && at < MOST) unflushed[unflushed_files++] = found.st_ino;
  pthread_mutex_unlock(&files);
}

static int empty(const char *path, const struct stat *found, int kind, struct FTW *place) {
  for (int at = 0; kind == FTW_F && at < unflushed_files; at++)
    if (unflushed[at] == found->st_ino) return truncate(path, 0);
  return 0;
}

static void cut_power(void) {
  armed = 0;
  pthread_mutex_lock(&files);
  nftw(below, empty, 64, FTW_PHYS);
  kill(getpid(), SIGKILL);
}

static int fails(unsigned call, const char *path) {
  if (!(armed & call) || !path) return 0;
  size_t length = strlen(below);
  if (strncmp(path, below, length) || (path[length] && path[length] != '/')) return 0;
  if (inside && call != LIST && !path[length]) return 0;
  long n = atomic_fetch_sub(&left, 1);
  if (n > 0 || (n < 0 && !lasting)) return 0;
  hits++;
  if (number == POWER_CUT) cut_power();
  errno = number;
  return 1;
}

static int fails_open(unsigned call, int fd) {
  if (!(armed & call)) return 0;
  char name[64], path[PATH_MAX];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return fails(call, path);
}

static int fails_at(unsigned call, int fd, const char *path) {
  if (!(armed & call)) return 0;
  if (!path || path[0] == '/' || fd == AT_FDCWD) return fails(call, path);
  char name[64], whole[2 * PATH_MAX];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, whole, PATH_MAX - 1);
  if (length < 0) return 0;
  snprintf(whole + length, sizeof whole - length, path[0] ? "/%s" : "%s", path);
  return fails(call, whole);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
#define OPENING(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT) ? CREATE : OPEN)

static int opened(int fd, int flags) { if (OPENING(flags) == CREATE) note(fd, 0); return fd; }
static ssize_t written(int fd, ssize_t count) { if (count > 0) note(fd, 0); return count; }
static int synced(int fd, int result) { if (!result) note(fd, 1); return result; }

int open(const char *path, int flags, ...) { REAL(open); MODE return fails(OPENING(flags), path) ? -1 : opened(real(path, flags, mode), flags); }
int open64(const char *path, int flags, ...) { REAL(open64); MODE return fails(OPENING(flags), path) ? -1 : opened(real(path, flags, mode), flags); }
int openat(int fd, const char *path, int flags, ...) { REAL(openat); MODE return fails_at(OPENING(flags), fd, path) ? -1 : opened(real(fd, path, flags, mode), flags); }
int openat64(int fd, const char *path, int flags, ...) { REAL(openat64); MODE return fails_at(OPENING(flags), fd, path) ? -1 : opened(real(fd, path, flags, mode), flags); }
FILE *fopen(const char *path, const char *mode) {
  REAL(fopen);
  FILE *file = fails(mode[0] == 'r' ? OPEN : CREATE, path) ? NULL : real(path, mode);
  if (file && mode[0] != 'r') note(fileno(file), 0);
  return file;
}
FILE *fopen64(const char *path, const char *mode) {
  REAL(fopen64);
  FILE *file = fails(mode[0] == 'r' ? OPEN : CREATE, path) ? NULL : real(path, mode);
  if (file && mode[0] != 'r') note(fileno(file), 0);
  return file;
}

DIR *opendir(const char *path) { REAL(opendir); return fails(LIST, path) ? NULL : real(path); }
DIR *fdopendir(int fd) { REAL(fdopendir); return fails_open(LIST, fd) ? NULL : real(fd); }

int stat(const char *path, struct stat *found) { REAL(stat); return fails(STAT, path) ? -1 : real(path, found); }
int stat64(const char *path, struct stat64 *found) { REAL(stat64); return fails(STAT, path) ? -1 : real(path, found); }
int lstat(const char *path, struct stat *found) { REAL(lstat); return fails(STAT, path) ? -1 : real(path, found); }
int lstat64(const char *path, struct stat64 *found) { REAL(lstat64); return fails(STAT, path) ? -1 : real(path, found); }
int fstatat(int fd, const char *path, struct stat *found, int flags) { REAL(fstatat); return fails_at(STAT, fd, path) ? -1 : real(fd, path, found, flags); }
int fstatat64(int fd, const char *path, struct stat64 *found, int flags) { REAL(fstatat64); return fails_at(STAT, fd, path) ? -1 : real(fd, path, found, flags); }
int access(const char *path, int mode) { REAL(access); return fails(STAT, path) ? -1 : real(path, mode); }

ssize_t read(int fd, void *to, size_t count) { REAL(read); return fails_open(READ, fd) ? -1 : real(fd, to, count); }
ssize_t pread(int fd, void *to, size_t count, off_t at) { REAL(pread); return fails_open(READ, fd) ? -1 : real(fd, to, count, at); }
ssize_t pread64(int fd, void *to, size_t count, off64_t at) { REAL(pread64); return fails_open(READ, fd) ? -1 : real(fd, to, count, at); }
ssize_t write(int fd, const void *from, size_t count) { REAL(write); return fails_open(WRITE, fd) ? -1 : written(fd, real(fd, from, count)); }
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { REAL(pwrite); return fails_open(WRITE, fd) ? -1 : written(fd, real(fd, from, count, at)); }
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) { REAL(pwrite64); return fails_open(WRITE, fd) ? -1 : written(fd, real(fd, from, count, at)); }
ssize_t writev(int fd, const struct iovec *from, int count) { REAL(writev); return fails_open(WRITE, fd) ? -1 : written(fd, real(fd, from, count)); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t count) { REAL(sendfile64); return fails_open(WRITE, to) || fails_open(READ, from) ? -1 : written(to, real(to, from, at, count)); }
ssize_t sendfile(int to, int from, off_t *at, size_t count) { REAL(sendfile); return fails_open(WRITE, to) || fails_open(READ, from) ? -1 : written(to, real(to, from, at, count)); }

int fsync(int fd) { REAL(fsync); return fails_open(SYNC, fd) ? -1 : synced(fd, real(fd)); }
int fdatasync(int fd) { REAL(fdatasync); return fails_open(SYNC, fd) ? -1 : synced(fd, real(fd)); }
int syncfs(int fd) { REAL(syncfs); return fails_open(SYNC, fd) ? -1 : real(fd); }
// The descriptor is closed all the same, as by a network file system that cannot write what it kept.
int close(int fd) { REAL(close); int failing = fails_open(CLOSE, fd), closed = real(fd); if (failing) errno = number; return failing ? -1 : closed; }

int rename(const char *from, const char *to) { REAL(rename); return fails(RENAME, to) ? -1 : real(from, to); }
int renameat(int a, const char *from, int b, const char *to) { REAL(renameat); return fails_at(RENAME, b, to) ? -1 : real(a, from, b, to); }
int link(const char *from, const char *to) { REAL(link); return fails(LINK, to) ? -1 : real(from, to); }
int linkat(int a, const char *from, int b, const char *to, int flags) { REAL(linkat); return fails_at(LINK, b, to) ? -1 : real(a, from, b, to, flags); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return fails(MKDIR, path) ? -1 : real(path, mode); }
int mkdirat(int fd, const char *path, mode_t mode) { REAL(mkdirat); return fails_at(MKDIR, fd, path) ? -1 : real(fd, path, mode); }
int unlink(const char *path) { REAL(unlink); return fails(UNLINK, path) ? -1 : real(path); }
int unlinkat(int fd, const char *path, int flags) { REAL(unlinkat); return fails_at(UNLINK, fd, path) ? -1 : real(fd, path, flags); }
int rmdir(const char *path) { REAL(rmdir); return fails(UNLINK, path) ? -1 : real(path); }
