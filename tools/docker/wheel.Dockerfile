# Adds emm's wheel to an image that has Python: tools/wheel, then
# docker build -f tools/docker/wheel.Dockerfile --build-arg BASE=pytorch/pytorch:latest -t with-emm build-wheel/dist
ARG BASE=python:3.12-slim
FROM ${BASE}
COPY emm_cuda-*.whl /tmp/emm/
# An environment in front of the image's own Python, whose packages it sees: a distribution's pip installs nowhere else.
RUN python3 -m venv --system-site-packages /opt/emm && \
    /opt/emm/bin/python -m pip install --no-cache-dir --no-index /tmp/emm/*.whl && \
    rm -r /tmp/emm
ENV PATH=/opt/emm/bin:$PATH
RUN EMM_DRIVER=sim EMM_PLUGIN=pool emm info
