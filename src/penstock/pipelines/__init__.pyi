"""What type checkers see of the names that are imported when they are used."""

from penstock.pipelines.check.validate import validate as validate
from penstock.pipelines.spec.durations import Duration as Duration
from penstock.pipelines.spec.loading import load as load
from penstock.pipelines.spec.model import Decoding as Decoding
from penstock.pipelines.spec.model import Encoding as Encoding
from penstock.pipelines.spec.model import Expectation as Expectation
from penstock.pipelines.spec.model import FormatSink as FormatSink
from penstock.pipelines.spec.model import FormatSource as FormatSource
from penstock.pipelines.spec.model import Pipeline as Pipeline
from penstock.pipelines.spec.model import PipelineTest as PipelineTest
from penstock.pipelines.spec.model import Restart as Restart
from penstock.pipelines.spec.model import Step as Step
from penstock.pipelines.spec.model import TopicSink as TopicSink
from penstock.pipelines.spec.model import TopicSource as TopicSource
from penstock.pipelines.spec.model import Watermark as Watermark
from penstock.pipelines.spec.problems import PipelineFailed as PipelineFailed
from penstock.pipelines.spec.problems import PipelineInvalid as PipelineInvalid
from penstock.pipelines.spec.problems import Problem as Problem
from penstock.pipelines.spec.secrets import Secret as Secret
