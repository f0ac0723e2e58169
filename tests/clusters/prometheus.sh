#!/bin/bash
# Debian's Prometheus into a folder, without its dependencies: prometheus.sh FOLDER
set -eux
cd "$1"
apt-get download -qq prometheus
dpkg-deb -x prometheus_*.deb .
test -x usr/bin/prometheus && test -x usr/bin/promtool
