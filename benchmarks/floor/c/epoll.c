// The epoll echo of ../echo_unsafe.go in C: what the floor is checked against.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <errno.h>

int main(int argc, char **argv) {
	static char buf[64 << 10];
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	if (argc != 2 || strlen(argv[1]) >= sizeof addr.sun_path) return 2;
	strcpy(addr.sun_path, argv[1]);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), ep = epoll_create1(EPOLL_CLOEXEC);
	if (bind(listener, (void *)&addr, sizeof addr) || listen(listener, 1024)) return perror("listen"), 1;
	struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, events[256];
	if (epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e)) return perror("epoll"), 1;
	printf("ready\n"), fflush(stdout);
	for (;;) {
		int n = epoll_wait(ep, events, 256, -1);
		if (n < 0 && errno != EINTR) return perror("epoll"), 1;
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener) {
				e.data.fd = accept4(listener, 0, 0, SOCK_CLOEXEC);
				if (e.data.fd < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, e.data.fd, &e)) return perror("accept"), 1;
				continue;
			}
			ssize_t got = recv(fd, buf, sizeof buf, 0);
			if (got <= 0) { close(fd); continue; }
			for (ssize_t sent = 0, k; sent < got; sent += k)
				if ((k = send(fd, buf + sent, got - sent, MSG_NOSIGNAL)) < 0) { close(fd); break; }
		}
	}
}
