# An image with emm, built from these sources: docker build -f tools/docker/source.Dockerfile -t emm .
ARG BASE=debian:12-slim

FROM ${BASE} AS build
# Versions are those of the release that BASE names.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates dpkg-dev g++ gzip libcli11-dev libfmt-dev \
        libspdlog-dev meson ninja-build nlohmann-json3-dev pkgconf python3 python3-pip && \
    rm -rf /var/lib/apt/lists/*
COPY . /emm
WORKDIR /emm
RUN tools/cuda-headers && \
    meson setup build-image --prefix=/usr/local --buildtype=release -Dunity=on -Dunity_size=8 -Dtests=false \
        -Dpythondir=/usr/local/lib/python3/dist-packages && \
    meson compile -C build-image && \
    meson install -C build-image --no-rebuild --strip --destdir=/image

FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends libgcc-s1 python3 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /image/usr/local /usr/local
ENV PYTHONPATH=/usr/local/lib/python3/dist-packages
RUN ldconfig && EMM_DRIVER=sim EMM_PLUGIN=pool emm info
ENTRYPOINT ["emm"]
CMD ["info"]
