#!/bin/bash
# The .deb from its installation to its end, under systemd: debian.sh OLD.deb NEW.deb VECTOR_ADD IDLE
set -eux
old=$1 new=$2 vector_add=$3 idle=$4
export CUDA_MPS_PIPE_DIRECTORY=/run/cumux LD_LIBRARY_PATH=/usr/lib/cumux

dpkg -i "$old"
test "$(cumux --version | cut -d' ' -f1)" = cumux
test -e /usr/share/man/man1/cumux-exporter.1.gz
test "$(systemctl is-active cumux || true)" = inactive
echo CUMUX_DEVICE=sim:h200 >>/etc/default/cumux

# Started, as its unit says it: systemd waits until the daemon says that it is ready.
systemctl enable --now cumux cumux-exporter
systemctl is-active cumux cumux-exporter
unset LD_LIBRARY_PATH
cumux run -- "$vector_add" 1 | grep PASS
export LD_LIBRARY_PATH=/usr/lib/cumux
setpriv --reuid=65534 --regid=65534 --clear-groups "$vector_add" 1 | grep PASS
test "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9456/healthz)" = 200
curl -s http://127.0.0.1:9456/readyz | tee /dev/stderr | grep 'was served'
curl -s http://127.0.0.1:9456/metrics | grep '^cumux_daemon_up 1'

# A program runs on while the daemon is killed and comes again, ...
mkfifo /tmp/words
"$idle" </tmp/words >/tmp/said &
exec 9>/tmp/words
until grep -q ready /tmp/said; do sleep 0.1; done
before=$(systemctl show -P MainPID cumux)
kill -KILL "$before"
until now=$(systemctl show -P MainPID cumux) && [ "$now" != "$before" ] && [ "$now" != 0 ] && systemctl is-active cumux; do sleep 0.1; done
echo >&9
until grep -q 'round 1 right' /tmp/said; do sleep 0.1; done

# ... while the package is replaced, and with it the executor, ...
executor() { cumux status | sed -n 's/.*executor \([0-9]*\) .*/\1/p' | head -1; }
until [ -n "$(executor)" ] && [ "$(executor)" != 0 ]; do sleep 0.1; done
first=$(executor)
dpkg -i "$new"
grep -q sim:h200 /etc/default/cumux
test "$(executor)" != "$first"
echo >&9
until grep -q 'round 2 right' /tmp/said; do sleep 0.1; done

# ... and to its own end.
exec 9>&-
wait $!
systemctl stop cumux
test -z "$(pgrep -f 'cumux (server|keeper|executor)' || true)"
systemctl start cumux
"$vector_add" 1 | grep PASS
systemctl stop cumux

# systemd listens, and the first program starts the daemon; its end, its death and the next program leave systemd's sockets as they are.
systemctl stop cumux-exporter
systemctl enable --now cumux.socket
files=$(stat -c %i /run/cumux/control /run/cumux/cumux)
test "$(systemctl is-active cumux || true)" = inactive
setpriv --reuid=65534 --regid=65534 --clear-groups "$vector_add" 1 | grep PASS
systemctl is-active cumux
"$vector_add" 1 | grep PASS
echo quit | cumux control
until [ "$(systemctl is-active cumux || true)" = inactive ]; do sleep 0.1; done
cumux control get_default_active_thread_percentage | grep 100
systemctl is-active cumux
before=$(systemctl show -P MainPID cumux)
kill -KILL "$before"
"$vector_add" 1 | grep PASS
test "$(systemctl show -P MainPID cumux)" != "$before"
echo quit | cumux control
until [ "$(systemctl is-active cumux || true)" = inactive ]; do sleep 0.1; done
cumux doctor | tee /dev/stderr | grep 'is started by the first program'
test "$(stat -c %i /run/cumux/control /run/cumux/cumux)" = "$files"
systemctl restart cumux
"$vector_add" 1 | grep PASS
# Without its socket unit the next daemon makes its own.
systemctl disable --now cumux.socket
systemctl restart cumux
"$vector_add" 1 | grep PASS
test "$(stat -c %i /run/cumux/control /run/cumux/cumux)" != "$files"
systemctl stop cumux
# A daemon that cannot start: its programs end with an error, and are served after the remedy.
systemctl start cumux.socket
sed -i s/sim:h200/sim:none/ /etc/default/cumux
if "$vector_add" 1; then exit 1; fi
systemctl is-failed cumux cumux.socket
sed -i s/sim:none/sim:h200/ /etc/default/cumux
systemctl reset-failed cumux.service cumux.socket
systemctl start cumux.socket
"$vector_add" 1 | grep PASS

dpkg -r cumux
test "$(systemctl is-active cumux || true)" = inactive
test ! -e /usr/bin/cumux
test ! -e /run/cumux
test -e /etc/default/cumux
dpkg -P cumux
test ! -e /etc/default/cumux
test ! -e /var/log/cumux
echo "the package was installed, used, replaced and removed"
